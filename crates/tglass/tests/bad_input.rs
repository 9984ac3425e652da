//! Things that cannot be looked at, and targets that lie.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use testkit::{
    Answer, Build, Fixture, NOBODY, Public, STRANGER, Tool, Value, Variant, as_user, eventually, has_static_libc, have,
    is_root, part, skip, thread, threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn built(file: &str) -> std::path::PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

/// A number that no process has.
fn nobodys_pid() -> i32 {
    // Above the largest pid_max there is.
    4_194_305
}

#[test]
fn words_that_are_no_pid() {
    for verb in ["threads", "tsd", "doctor"] {
        for pid in ["0", "-1", "-4711", "abc", "", "12x", "0x10", "99999999999999999999", "2147483648", "1.5"] {
            let answer = tool().run(&[verb, pid]);
            assert_eq!(answer.code, Some(2), "{verb} {pid}: {}", answer.stderr);
            assert!(answer.stdout.is_empty() && !answer.stderr.contains("panicked"), "{}", answer.stderr);
        }
    }
    assert_eq!(tool().run(&["threads"]).code, Some(2));
    assert_eq!(tool().run(&["suspend", "1"]).code, Some(2));
}

#[test]
fn words_that_are_no_filter() {
    let pid = std::process::id().to_string();
    for (option, value) in [
        ("--state", "sleeping"),
        ("--state", ""),
        ("--min-priority", "high"),
        ("--sigmask", "SIGNOPE"),
        ("--sigmask", "0xg"),
        ("--sigmask", "65"),
        ("--flags", "forty"),
        ("--flags", "-1"),
    ] {
        let answer = tool().run(&["threads", &pid, &format!("{option}={value}")]);
        assert_eq!(answer.code, Some(2), "{option}={value}: {}", answer.text());
        assert!(answer.stderr.contains(option), "{}", answer.stderr);
    }
}

#[test]
fn no_such_process() {
    let pid = nobodys_pid().to_string();
    for verb in ["threads", "tsd", "doctor"] {
        let answer = tool().run(&[verb, &pid]);
        let line = answer.assert_refused();
        assert!(line.contains(&format!("no process {pid}")), "{line}");
    }
    tool().run(&["suspend", &pid, &pid]).assert_refused();
}

#[test]
fn a_zombie_process() {
    let mut fixture = Fixture::new("threads_truth.c");
    fixture.kill();
    // The leader becomes one before its last threads are gone.
    eventually("the fixture should become a zombie", || {
        testkit::task_state(fixture.pid(), fixture.pid()).is_some_and(|task| task.letter == 'Z')
            && std::fs::read_dir(format!("/proc/{}/task", fixture.pid())).is_ok_and(|tasks| tasks.count() == 1)
    });
    for verb in ["threads", "tsd", "doctor"] {
        let answer = tool().run(&[verb, &fixture.pid().to_string()]);
        let line = answer.assert_refused();
        assert!(line.contains("zombie") && line.contains(&std::process::id().to_string()), "names the parent: {line}");
    }
}

#[test]
fn a_thread_of_the_kernel() {
    // Its parent is 0 and it is not init: kthreadd.
    if !std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        return skip("a_thread_of_the_kernel", "kernel threads are not visible from this pid namespace");
    }
    for verb in ["threads", "tsd", "doctor"] {
        let answer = tool().run(&[verb, "2"]);
        assert!(answer.assert_refused().contains("kernel thread"), "{}", answer.stderr);
    }
}

#[test]
fn a_thread_instead_of_its_process() {
    let fixture = Fixture::new("pending.c").settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    let other = threads(&snapshot).iter().find(|thread| thread["lwp"] != fixture.pid()).unwrap();
    let answer = tool().run(&["threads", &other["lwp"].to_string()]);
    let line = answer.assert_refused();
    assert!(line.contains(&fixture.pid().to_string()), "names the process: {line}");
    // Nor is a thread of one process a thread of another.
    let own = std::process::id().to_string();
    tool().run(&["suspend", &own, &other["lwp"].to_string(), "--for", "1ms"]).assert_refused();
}

/// Starts the fixture as `owner` and looks at it as `looker`.
fn across_users(owner: u32, looker: u32) -> (Fixture, Answer, Answer) {
    let public = Public::new();
    let program = public.copy(&built("threads_truth.c"), "threads_truth");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let fixture = Fixture::command(as_user(owner, &program)).settled();
    let pid = fixture.pid().to_string();
    let look = |verb: &str| {
        let mut command = as_user(looker, &tglass);
        command.args([verb, &pid, "--json"]);
        Answer::of(command)
    };
    let answers = (look("threads"), look("doctor"));
    (fixture, answers.0, answers.1)
}

#[test]
fn a_process_of_another_user() {
    let test = "a_process_of_another_user";
    if !is_root(test, "to run as two other users") || !have(test, "setpriv") {
        return;
    }
    let (fixture, answer, doctor) = across_users(STRANGER, NOBODY);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let snapshot = answer.json();
    let told: Vec<_> = threads(fixture.truth()).iter().filter(|truth| !truth["lwp"].is_null()).collect();
    assert_eq!(threads(&snapshot).len(), told.len(), "{snapshot:#}");
    for truth in told {
        let seen = thread(&snapshot, truth["lwp"].as_i64().unwrap());
        assert_eq!(seen["id"], Value::Null, "what may not be read is not made up");
        for name in ["name", "priority", "policy", "signal_mask", "pending"] {
            assert_eq!(seen[name], truth[name], "{} {name}", truth["role"]);
        }
        if truth["state"] == "sleep" {
            assert_eq!(seen["state"], "sleep", "{}", truth["role"]);
        }
    }
    let gaps = snapshot["gaps"].to_string();
    assert!(gaps.contains(&STRANGER.to_string()) && gaps.contains("CAP_SYS_PTRACE"), "says why and what to do: {gaps}");
    assert_eq!(doctor.code, Some(0), "{}", doctor.stderr);
    assert!(doctor.text().contains("CAP_SYS_PTRACE"), "{}", doctor.text());
}

#[test]
fn a_process_of_the_same_user_without_privileges() {
    let test = "a_process_of_the_same_user_without_privileges";
    if !is_root(test, "to become a user without privileges") || !have(test, "setpriv") {
        return;
    }
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(yama.trim(), "" | "0") {
        return skip(test, "kernel.yama.ptrace_scope forbids looking at one's own processes");
    }
    let (fixture, answer, _) = across_users(NOBODY, NOBODY);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let mut faults = testkit::differences(fixture.truth(), &answer.json(), testkit::View::PLAIN);
    // Real-time policies need a privilege: the truth then says so, and agrees.
    faults.retain(|fault| !fault.starts_with("spinner: state"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn assert_safe_for_a_terminal(text: &str) {
    for c in text.chars().filter(|c| *c != '\n') {
        assert!(!c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c), "{c:?} reaches the terminal: {text:?}");
    }
}

#[test]
fn names_that_would_drive_a_terminal() {
    let fixture = Fixture::new("names.c").settled();
    let pid = fixture.pid().to_string();
    let snapshot = tool().threads(fixture.pid(), &[]);
    for (lwp, hex) in fixture.truth().as_object().unwrap() {
        let hex = hex.as_str().unwrap();
        let bytes: Vec<_> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let seen = thread(&snapshot, lwp.parse().unwrap());
        assert_eq!(seen["name"], *String::from_utf8_lossy(&bytes), "{hex}");
        assert_eq!(seen["state"], "sleep", "a name with parentheses does not hide the state: {hex}");
    }
    for verb in ["threads", "tsd", "doctor"] {
        let answer = tool().run(&[verb, &pid]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert_safe_for_a_terminal(&answer.text());
    }
    // One line a thread, whatever its name holds.
    let text = tool().run(&["threads", &pid]).text();
    let rows = text.lines().filter(|line| line.split_whitespace().next().is_some_and(|w| w.parse::<i32>().is_ok()));
    assert_eq!(rows.count(), fixture.truth().as_object().unwrap().len() + 1, "{text}");
}

#[test]
fn a_program_whose_path_would_drive_a_terminal() {
    let public = Public::new();
    let name = OsStr::from_bytes(b"ev\x1b[2Jil\nna\xffme) R (");
    let program = public.copy(&Build::new("threads_truth.c").variant(Variant::Stripped).path(), name);
    let fixture = Fixture::start(&program, &[]).settled();
    let pid = fixture.pid().to_string();
    for verb in ["threads", "tsd", "doctor"] {
        let answer = tool().run(&[verb, &pid]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert_safe_for_a_terminal(&answer.text());
    }
    let faults = testkit::differences(
        fixture.truth(),
        &tool().threads(fixture.pid(), &[]),
        testkit::View { symbols: false, inner: false },
    );
    let faults: Vec<_> = faults.iter().filter(|fault| !fault.starts_with("spinner: state")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Looks at a process whose thread list is wrong in one way. The kernel still leads to the
/// descriptors of the living, so those must be right; and it must be said that something is wrong.
fn lying_list(how: &str, variant: Variant) {
    if variant.is_static() && !has_static_libc("lying_list") {
        return;
    }
    let fixture = Fixture::start(&Build::new("corrupt_list.c").variant(variant).path(), &[how]).settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    for truth in threads(fixture.truth()) {
        let seen = thread(&snapshot, truth["lwp"].as_i64().unwrap());
        assert_eq!((&seen["id"], &seen["state"]), (&truth["id"], &"sleep".into()), "{how} {variant:?}");
    }
    let living = threads(&snapshot).iter().filter(|thread| !thread["lwp"].is_null()).count();
    assert_eq!(living, threads(fixture.truth()).len(), "{how} {variant:?}");
    assert!(snapshot["gaps"].as_array().is_some_and(|gaps| !gaps.is_empty()), "{how} {variant:?}: nothing is said");
}

#[test]
fn thread_lists_that_loop_or_lead_nowhere() {
    for how in ["loop", "self", "null", "unmapped", "noncanonical", "top"] {
        lying_list(how, Variant::Default);
    }
}

#[test]
fn other_commands_on_a_thread_list_that_lies() {
    let fixture = Fixture::start(&built("corrupt_list.c"), &["loop"]).settled();
    for verb in ["tsd", "doctor"] {
        let answer = tool().run(&[verb, &fixture.pid().to_string()]);
        assert_eq!(answer.code, Some(0), "{verb}: {}", answer.stderr);
        assert!(answer.text().contains("not seen") || verb == "doctor", "{}", answer.text());
    }
}

#[test]
fn thread_lists_of_a_static_program_without_symbols() {
    for how in ["loop", "null", "unmapped", "noncanonical", "top"] {
        lying_list(how, Variant::StaticStripped);
    }
}

#[test]
fn a_thread_list_with_millions_of_nodes() {
    lying_list("huge", Variant::Default);
}

#[test]
fn a_thread_list_with_a_crowd_of_invented_threads() {
    lying_list("crowd", Variant::Default);
}

/// The start function lies in a library whose file has been replaced by something else.
fn replaced_library(how: &str) {
    let public = Public::new();
    let library = Build::new("start_in_library.c").variant(Variant::Library).flags(&["-DLIBRARY"]).path();
    let look = |fixture: &Fixture, answer: Answer| {
        assert_eq!(answer.code, Some(0), "{how}: {}", answer.stderr);
        let snapshot = answer.json();
        let seen = thread(&snapshot, fixture.truth()["lwp"].as_i64().unwrap());
        assert_eq!((&seen["id"], &seen["start"]), (&fixture.truth()["id"], &fixture.truth()["start"]), "{how}");
        assert_eq!(seen["start_function"], "library_start", "{how}");
    };
    let path = public.copy(&library, "library.so");
    let fixture = Fixture::start(&built("start_in_library.c"), &[path.to_str().unwrap(), how]).settled();
    look(&fixture, tool().run(&["threads", &fixture.pid().to_string(), "--json"]));

    // A user who may not open the kernel's own handle on the file is led to the path.
    let what = format!("a library that was {how}, as a user without privileges");
    if !is_root(part(&what), "to become a user without privileges") || !have(part(&what), "setpriv") {
        return;
    }
    let path = public.writable().join("library.so");
    std::fs::copy(&library, &path).unwrap();
    let program = public.copy(&built("start_in_library.c"), "start_in_library");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let mut command = as_user(NOBODY, &program);
    command.arg(&path).arg(how);
    let fixture = Fixture::command(command).settled();
    let mut command = as_user(NOBODY, &tglass);
    command.args(["threads", &fixture.pid().to_string(), "--json"]);
    look(&fixture, Answer::of(command));
}

#[test]
fn a_library_whose_file_is_what_it_was() {
    replaced_library("keep");
}

#[test]
fn a_library_whose_file_is_gone() {
    replaced_library("delete");
}

#[test]
fn a_library_whose_file_became_a_fifo() {
    replaced_library("fifo");
}

#[test]
fn a_library_whose_file_became_a_device_or_directory() {
    replaced_library("device");
    replaced_library("directory");
}

/// Its own user may not look into a process that forbids it: said, with what is left.
#[test]
fn a_process_that_protects_itself() {
    let test = "a_process_that_protects_itself";
    if !is_root(test, "to become a user without privileges") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&built("pending.c"), "pending");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let mut command = as_user(NOBODY, &program);
    command.arg("protected");
    let fixture = Fixture::command(command).settled();
    let look = |verb: &str| {
        let mut command = as_user(NOBODY, &tglass);
        command.args([verb, &fixture.pid().to_string(), "--json"]);
        Answer::of(command)
    };
    let snapshot = look("threads").json();
    assert_eq!(threads(&snapshot).len(), 2, "{snapshot:#}");
    for thread in threads(&snapshot) {
        let own = &fixture.truth()["own"][thread["lwp"].to_string()];
        assert_eq!((&thread["id"], &thread["state"], &thread["pending"]), (&Value::Null, &"sleep".into(), own));
    }
    assert!(snapshot["gaps"].to_string().contains("root"), "says what to do: {:#}", snapshot["gaps"]);
    assert_eq!(look("doctor").code, Some(0));
    // Of thread-specific data nothing is left.
    assert!(look("tsd").assert_refused().contains("root"), "says what to do");
}
