//! gdb with our library in place of the system's: the same threads, the same variables, no complaints.

mod common;

use common::{Source, as_libthread_db, tls_libraries};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Fixture, Value, address, have, threads};

/// Whose library gdb is told to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Ours,
    System,
}

const BOTH: [Library; 2] = [Library::Ours, Library::System];

impl Library {
    fn dir(self) -> PathBuf {
        match self {
            Self::Ours => as_libthread_db().to_owned(),
            // Where the system's own programs find it.
            Self::System => PathBuf::from("$sdir"),
        }
    }
}

/// Runs gdb with these commands; what it says.
fn gdb(library: Library, program: Option<&Path>, commands: &[&str]) -> String {
    let dir = library.dir();
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch"]);
    for setting in [
        format!("set auto-load safe-path {}", dir.display()),
        format!("set libthread-db-search-path {}", dir.display()),
        "set pagination off".to_owned(),
        "set width 0".to_owned(),
        "set debuginfod enabled off".to_owned(),
    ] {
        command.args(["-iex", &setting]);
    }
    for line in commands {
        command.args(["-ex", line]);
    }
    command.args(program);
    let answer = Answer::of(command);
    // One after the other: gdb writes its complaints to the second. The age of the sources is not our affair.
    let text = (answer.text() + &answer.stderr).replace("warning: Source file is more recent than executable.", "");
    assert!(text.contains("[Thread debugging using libthread_db enabled]"), "{library:?} was not loaded:\n{text}");
    if library == Library::Ours {
        assert!(text.contains(&format!("{}/libthread_db.so.1", dir.display())), "not our library:\n{text}");
        for complaint in
            ["warning:", "Unable to find libthread_db", "Cannot find", "(Exiting)", "internal error", "fatal error"]
        {
            assert!(!text.contains(complaint), "gdb complains ({complaint}):\n{text}");
        }
    }
    text
}

/// The pairs of pthread and LWP that `info threads` shows (and also New Thread notices).
fn pairs(text: &str) -> Vec<(u64, i64)> {
    let shown = text.lines().filter(|line| !line.starts_with('['));
    let pair = |line: &str| {
        let (id, rest) = line.split_once("Thread 0x")?.1.split_once(" (LWP ")?;
        Some((u64::from_str_radix(id, 16).ok()?, rest.split_once(')')?.0.parse().ok()?))
    };
    shown.filter(|line| line.starts_with(['*', ' '])).filter_map(pair).collect()
}

/// What the program said of its threads.
fn truth(text: &str) -> Value {
    let start = text.find("{\"threads\"").unwrap_or_else(|| panic!("the program said nothing:\n{text}"));
    let mut values = testkit::serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().and_then(Result::ok).unwrap_or_else(|| panic!("the program's truth is not JSON:\n{text}"))
}

fn true_pairs(truth: &Value) -> Vec<(u64, i64)> {
    threads(truth).iter().map(|thread| (address(&thread["id"]), thread["lwp"].as_i64().unwrap_or(0))).collect()
}

/// The values gdb printed, in order.
fn values(text: &str) -> Vec<String> {
    let line = |line: &str| Some(line.strip_prefix('$')?.split_once(" = ")?.1.to_owned());
    text.lines().filter_map(line).collect()
}

/// `thread apply all` goes from the last thread to the first.
fn expected(truth: &Value, variable: &str) -> Vec<String> {
    threads(truth).iter().rev().map(|thread| thread[variable].to_string()).collect()
}

/// Thread ids differ from run to run: they become the order in which they were first seen.
fn without_ids(text: &str) -> String {
    let mut seen = BTreeMap::new();
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("(LWP ") {
        let (number, behind) = after.split_once(')').unwrap_or((after, ""));
        let next = seen.len();
        let place = *seen.entry(number.to_owned()).or_insert(next);
        out += &format!("{before}(LWP #{place})");
        rest = behind;
    }
    out + rest
}

/// The lines that must not depend on the library: threads without their frames, and values.
fn comparable(text: &str) -> Vec<String> {
    let keep = |line: &str| match line {
        line if line.starts_with('$') => Some(line.to_owned()),
        line if line.starts_with(['*', ' ']) && line.contains("Thread 0x") => {
            // Without gdb's own number, which depends on when it noticed what, and the address, which depends on
            // which thread first needed memory.
            let thread = &line[line.find("(LWP ")?..];
            Some(thread.split_once('"').map_or(thread, |(thread, _)| thread).trim_end().to_owned())
        }
        _ => None,
    };
    let lines: Vec<_> = text.lines().filter_map(keep).collect();
    without_ids(&lines.join("\n")).lines().map(str::to_owned).collect()
}

fn assert_check_passes(text: &str, times: usize) {
    let passed = text.matches("libthread_db integrity checks passed.").count();
    assert_eq!(passed, times, "maint check libthread-db:\n{text}");
    assert!(!text.contains("FAILED"), "{text}");
}

fn program(flags: &[&str]) -> PathBuf {
    let (linked, _) = tls_libraries();
    Source::new("debugged.c").flags(flags).link(&linked).build()
}

fn loaded_library() -> String {
    tls_libraries().1.display().to_string()
}

const PRINT_OWN: &str = "thread apply all -q print own_value";
const PRINT_LIBRARY: &str = "thread apply all -q print library_value";
const PRINT_LOADED: &str = "thread apply all -q print loaded_value";

#[test]
fn run_to_a_breakpoint_and_on() {
    if !have("run_to_a_breakpoint_and_on", "gdb") {
        return;
    }
    let program = program(&[]);
    let run = format!("run {} < /dev/null", loaded_library());
    let mut seen = Vec::new();
    for library in BOTH {
        let text = gdb(
            library,
            Some(&program),
            &[
                "break everyone_is_here",
                &run,
                "info threads",
                PRINT_OWN,
                PRINT_LIBRARY,
                PRINT_LOADED,
                "thread apply all -q print own_text",
                "maint check libthread-db",
                "set var own_value = 1000",
                "thread 3",
                "set var own_value = 1002",
                "set var library_value = 2002",
                "set var loaded_value = 3002",
                "continue",
            ],
        );
        let before = truth(&text);
        assert_eq!(pairs(&text), true_pairs(&before), "{library:?}:\n{text}");
        let mut wanted: Vec<_> = ["own", "library", "loaded"].iter().flat_map(|name| expected(&before, name)).collect();
        let texts = (1..=4).rev().map(|n| format!("thread {n}"));
        wanted.extend(texts.chain(["untouched".to_owned()]).map(|text| format!("\"{text}\", '\\000' <repeats")));
        let got = values(&text);
        assert_eq!(got.len(), wanted.len(), "{library:?}:\n{text}");
        for (got, wanted) in got.iter().zip(&wanted) {
            assert!(got.starts_with(wanted.as_str()), "{library:?}: {got} is not {wanted}:\n{text}");
        }
        assert_check_passes(&text, 1);
        assert!(text.contains("exited normally"), "{library:?}:\n{text}");
        // What the debugger wrote is what the threads find.
        let after = truth(&text[text.find("ready").unwrap_or(0)..]);
        let after = threads(&after);
        assert_eq!(after[0]["own"], 1000, "{library:?}:\n{text}");
        assert_eq!(
            (&after[2]["own"], &after[2]["library"], &after[2]["loaded"]),
            (&1002.into(), &2002.into(), &3002.into())
        );
        assert_eq!(after[1]["own"], 11, "{library:?}: another thread's variable was written\n{text}");
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
}

#[test]
fn a_breakpoint_in_a_thread() {
    if !have("a_breakpoint_in_a_thread", "gdb") {
        return;
    }
    let program = program(&[]);
    let run = format!("run {} < /dev/null", loaded_library());
    let text = gdb(
        Library::Ours,
        Some(&program),
        &[
            // Here the thread has not touched the loaded library's storage.
            "break start",
            &run,
            "print own_value",
            "print loaded_value",
            "delete",
            "break in_thread if n == 3",
            "continue",
            "thread",
            "print views[3].id",
            "print views[3].lwp",
            "print own_value",
            "print loaded_value",
            "kill",
        ],
    );
    assert!(text.contains("has not yet allocated storage"), "TD_TLSDEFER was not reported:\n{text}");
    let got = values(&text);
    let current = text.lines().find(|line| line.starts_with("[Current thread is")).expect("the thread command");
    let (id, lwp): (u64, &str) = (got[1].parse().expect("a pthread_t"), &got[2]);
    assert!(current.contains(&format!("(Thread {id:#x} (LWP {lwp}))")), "{current} is not {id:#x} {lwp}:\n{text}");
    assert_eq!((got[0].as_str(), got[3].as_str(), got[4].as_str()), ("5", "13", "33"), "{text}");
}

#[test]
fn attach_detach_and_again() {
    if !have("attach_detach_and_again", "gdb") {
        return;
    }
    let mut fixture = Fixture::start(&program(&[]), &[&loaded_library()]);
    let attach = format!("attach {}", fixture.pid());
    let mut seen = Vec::new();
    for library in BOTH {
        let look = ["info threads", PRINT_OWN, PRINT_LIBRARY, PRINT_LOADED, "maint check libthread-db", "detach"];
        let mut commands = vec![attach.as_str()];
        commands.extend(look);
        // The library was unloaded, and is loaded again.
        commands.push(&attach);
        commands.extend(look);
        let text = gdb(library, None, &commands);
        assert_eq!(text.matches("libthread_db enabled").count(), 2, "{library:?}:\n{text}");
        let mut wanted = true_pairs(fixture.truth());
        // gdb lists the main thread first and the others by age; twice, because we looked twice.
        wanted.extend(wanted.clone());
        assert_eq!(pairs(&text), wanted, "{library:?}:\n{text}");
        let once = ["own", "library", "loaded"].iter().flat_map(|name| expected(fixture.truth(), name));
        let once: Vec<_> = once.collect();
        assert_eq!(values(&text), [once.clone(), once].concat(), "{library:?}:\n{text}");
        assert_check_passes(&text, 2);
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
    gdb(
        Library::Ours,
        None,
        &[&attach, "thread 4", "set var own_value = 77", "set var library_value = 78", "set var loaded_value = 79"],
    );
    // The process survives all of it, and finds what was written.
    let after: Value = testkit::serde_json::from_str(&fixture.ask("finish")).expect("its truth as JSON");
    let worker = &threads(&after)[3];
    assert_eq!((&worker["own"], &worker["library"], &worker["loaded"]), (&77.into(), &78.into(), &79.into()));
    assert_eq!(threads(&after)[2], threads(fixture.truth())[2], "another thread's variables were written");
    assert_eq!(fixture.line(), "done");
}

#[test]
fn static_programs() {
    if !have("static_programs", "gdb") || !testkit::has_static_libc("static_programs") {
        return;
    }
    let program = Source::new("debugged.c").flags(&["-static", "-DSTATIC"]).build();
    let mut seen = Vec::new();
    for library in BOTH {
        let text = gdb(
            library,
            Some(&program),
            &[
                "break in_thread if n == 1",
                "break everyone_is_here",
                "run < /dev/null",
                "print own_value",
                "set var own_value = 500",
                "continue",
                "info threads",
                "thread apply all -q print own_value",
                "maint check libthread-db",
                "continue",
            ],
        );
        let before = truth(&text);
        assert_eq!(pairs(&text), true_pairs(&before), "{library:?}:\n{text}");
        assert_eq!(values(&text), ["11", "14", "13", "12", "500", "10"], "{library:?}:\n{text}");
        assert_check_passes(&text, 1);
        let after = truth(&text[text.find("ready").unwrap_or(0)..]);
        assert_eq!(threads(&after)[1]["own"], 500, "{library:?}:\n{text}");
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
}

#[test]
fn static_program_attached() {
    if !have("static_program_attached", "gdb") || !testkit::has_static_libc("static_program_attached") {
        return;
    }
    let program = Source::new("debugged.c").flags(&["-static", "-DSTATIC"]).build();
    let mut fixture = Fixture::start(&program, &[]);
    let attach = format!("attach {}", fixture.pid());
    for library in BOTH {
        let text = gdb(library, None, &[&attach, "info threads", PRINT_OWN, "maint check libthread-db"]);
        assert_eq!(pairs(&text), true_pairs(fixture.truth()), "{library:?}:\n{text}");
        assert_eq!(values(&text), expected(fixture.truth(), "own"), "{library:?}:\n{text}");
        assert_check_passes(&text, 1);
    }
    fixture.ask("finish");
    assert_eq!(fixture.line(), "done");
}

#[test]
fn following_forks() {
    if !have("following_forks", "gdb") {
        return;
    }
    let program = program(&["-DFORK"]);
    let mut seen = Vec::new();
    for library in BOTH {
        let text = gdb(
            library,
            Some(&program),
            &[
                "set detach-on-fork off",
                "set follow-fork-mode child",
                "break everyone_is_here",
                "run < /dev/null",
                "continue",
                "info threads",
                PRINT_OWN,
                "maint check libthread-db",
                "inferior 1",
                "maint check libthread-db",
                "kill inferiors 1 2",
            ],
        );
        assert_check_passes(&text, 2);
        let mut shown = pairs(&text);
        let child = shown.split_off(5);
        assert_eq!(shown, true_pairs(&truth(&text)), "{library:?}: the parent's threads\n{text}");
        assert_eq!(child.len(), 2, "{library:?}: main and one thread in the child\n{text}");
        assert_eq!(child[0].0, shown[0].0, "{library:?}: main has the same pthread_t\n{text}");
        assert_eq!(values(&text), ["11", "50", "14", "13", "12", "11", "10"], "{library:?}:\n{text}");
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
}

#[test]
fn following_the_parent_of_a_fork() {
    if !have("following_the_parent_of_a_fork", "gdb") {
        return;
    }
    let text = gdb(
        Library::Ours,
        Some(&program(&["-DFORK"])),
        &["break everyone_is_here", "run < /dev/null", "delete", "continue"],
    );
    assert!(text.contains("child 0") && text.contains("exited normally"), "{text}");
}

#[test]
fn a_program_that_executes_another() {
    if !have("a_program_that_executes_another", "gdb") {
        return;
    }
    let next = program(&[]);
    let first = program(&[&format!("-DAGAIN=\"{}\"", next.display())]);
    let mut seen = Vec::new();
    for library in BOTH {
        let commands = [
            "break everyone_is_here",
            "run < /dev/null",
            "info threads",
            "continue",
            "info threads",
            PRINT_OWN,
            PRINT_LIBRARY,
            "maint check libthread-db",
            "continue",
        ];
        // gdb itself can miss an exec while threads end, with the system's library too: one of five is enough.
        let mut texts = (0..5).map(|_| gdb(library, Some(&first), &commands));
        let text = texts.find(|text| text.contains("executing new program")).expect("an exec in one of five runs");
        let again = text.find("executing new program").expect("just found");
        let after = truth(&text[again..]);
        let wanted = [true_pairs(&truth(&text)), true_pairs(&after)].concat();
        assert_eq!(pairs(&text), wanted, "{library:?}:\n{text}");
        assert_eq!(values(&text), [expected(&after, "own"), expected(&after, "library")].concat(), "{text}");
        assert_check_passes(&text, 1);
        assert!(text.contains("exited normally"), "{library:?}:\n{text}");
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
}

#[test]
fn two_programs_at_once() {
    if !have("two_programs_at_once", "gdb") {
        return;
    }
    let program = program(&[]);
    let add = format!("add-inferior -exec {}", program.display());
    let run = format!("run {} < /dev/null", loaded_library());
    let text = gdb(
        Library::Ours,
        Some(&program),
        &[
            "break everyone_is_here",
            &run,
            &add,
            "inferior 2",
            &run,
            "info threads",
            PRINT_LOADED,
            "maint check libthread-db",
            "inferior 1",
            "maint check libthread-db",
            "kill inferiors 1",
            "inferior 2",
            "maint check libthread-db",
            "set var loaded_value = 99",
            "continue",
        ],
    );
    assert_check_passes(&text, 3);
    let first = truth(&text);
    let second = truth(&text[text.find("[Switching to inferior 2").expect("the second program")..]);
    assert_eq!(pairs(&text), [true_pairs(&first), true_pairs(&second)].concat(), "{text}");
    let wanted = [expected(&second, "loaded"), expected(&first, "loaded")].concat();
    assert_eq!(values(&text), wanted, "{text}");
    let after = truth(&text[text.find("ready").expect("the second goes on")..]);
    assert_eq!(threads(&after)[0]["loaded"], 99, "{text}");
}

#[test]
fn a_core_file_while_its_process_lives() {
    if !have("a_core_file_while_its_process_lives", "gdb") {
        return;
    }
    let program = program(&[]);
    let fixture = Fixture::start(&program, &[&loaded_library()]);
    let dir = testkit::Public::new();
    let core = dir.path().join("core");
    let (attach, save) = (format!("attach {}", fixture.pid()), format!("generate-core-file {}", core.display()));
    gdb(Library::System, None, &[&attach, &save]);
    let open = format!("core-file {}", core.display());
    let mut seen = Vec::new();
    for library in BOTH {
        let text = gdb(
            library,
            Some(&program),
            &[&open, "info threads", PRINT_OWN, PRINT_LIBRARY, PRINT_LOADED, "maint check libthread-db"],
        );
        let mut shown = pairs(&text);
        shown.sort_unstable();
        let mut wanted = true_pairs(fixture.truth());
        wanted.sort_unstable();
        assert_eq!(shown, wanted, "{library:?}:\n{text}");
        assert_check_passes(&text, 1);
        seen.push(comparable(&text));
    }
    assert_eq!(seen[0], seen[1], "ours and the system's differ");
}

/// At first there is no thread library, then one that has set up nothing, then threads.
#[test]
fn from_the_first_instruction() {
    if !have("from_the_first_instruction", "gdb") || !testkit::has_static_libc("from_the_first_instruction") {
        return;
    }
    let fixed = Source::new("debugged.c").flags(&["-static", "-DSTATIC"]).build();
    let look = ["info threads", "maint check libthread-db"];
    let stop = ["starti < /dev/null", "break __libc_start_main", "tbreak main"];
    let commands = [&stop[..2], &look, &["continue"], &look, &stop[2..], &["continue"], &look, &["print own_value"]];
    let text = gdb(Library::Ours, Some(&fixed), &commands.concat());
    assert_check_passes(&text, 3);
    assert!(text.contains("Got thread 0x0 => "), "before threads are set up the handle is 0:\n{text}");
    assert_eq!(pairs(&text).len(), 1, "only the last look shows a pthread:\n{text}");
    assert_eq!(values(&text), ["5"], "{text}");
    // The same with a dynamic program, which has no libc at first, and with a check at every load.
    let commands =
        ["maint set check-libthread-db 1", "starti < /dev/null", "info threads", "break everyone_is_here", "continue"];
    let text = gdb(Library::Ours, Some(&program(&[])), &[&commands[..], &look[..], &["continue"]].concat());
    assert_eq!(pairs(&text), true_pairs(&truth(&text)), "{text}");
    assert!(text.contains("exited normally"), "{text}");
}

/// gdb shows LWPs, so one that has ended but was not joined is not among them.
#[test]
fn a_thread_that_ended_and_was_not_joined() {
    if !have("a_thread_that_ended_and_was_not_joined", "gdb") {
        return;
    }
    let fixture = Fixture::new("threads_truth.c").settled();
    let attach = format!("attach {}", fixture.pid());
    let wanted: Vec<_> = true_pairs(fixture.truth()).into_iter().filter(|(_, lwp)| *lwp != 0).collect();
    for library in BOTH {
        let mut shown = pairs(&gdb(library, None, &[&attach, "info threads"]));
        assert_eq!(shown.len(), wanted.len(), "{library:?}: {shown:x?}");
        shown.retain(|pair| !wanted.contains(pair));
        assert!(shown.is_empty(), "{library:?}: {shown:x?} do not exist");
    }
}

/// A thread that libc did not make is, to gdb, the thread on whose descriptor it runs.
#[test]
fn threads_that_libc_did_not_make() {
    if !have("threads_that_libc_did_not_make", "gdb") {
        return;
    }
    let program = Source::new("raw_clone.c").build();
    for how in ["shared", "process", "gone", "leader"] {
        let run = format!("run {how} < /dev/null");
        // The second time, everything else has come to where it stays.
        let commands = ["break in_clone", &run, "continue", "print/x creator", "print own_value", "info threads"];
        let text = gdb(Library::Ours, Some(&program), &[&commands[..], &["continue", "delete", "continue"]].concat());
        let got = values(&text);
        let shown = text.lines().find(|line| line.starts_with('*')).unwrap_or_default();
        assert!(shown.contains(&format!("Thread {} (LWP", got[0])), "{how}: {shown} is not {got:?}:\n{text}");
        assert_eq!(got[1], "77", "{how}:\n{text}");
        assert_eq!(text.matches("Breakpoint 1, in_clone (times=").count(), 3, "{how}:\n{text}");
    }
}
