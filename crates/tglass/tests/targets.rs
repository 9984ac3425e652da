//! Targets and locks by their names, several targets at once, and what the exit status tells.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use testkit::{Answer, Build, Dumpable, Fixture, Public, Tool, Value, Variant, address, part, serde_json, skip};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn built(file: &str) -> PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

fn start(file: &str, args: &[&str]) -> Fixture {
    Fixture::start(&built(file), args).settled()
}

/// A name that no other process has; the kernel keeps 15 bytes of it.
fn unique(word: &str) -> String {
    format!("{word}{}", std::process::id())
}

/// A program under another name. A copy could not be executed while a child of another test, which was forked meanwhile,
/// has it open.
fn linked(public: &Public, program: &str, name: &str) -> PathBuf {
    let link = public.path().join(name);
    std::os::unix::fs::symlink(program, &link).expect("a link in our own directory");
    link
}

/// A number that no process has.
const NOBODYS_PID: &str = "4194305";

#[test]
fn every_command_takes_a_name_and_p() {
    let public = Public::new();
    let name = unique("everyc");
    let fixture = Fixture::start(&public.copy(&built("deadlocks.c"), &name), &["abba"]).settled();
    let (pid, lwp) = (fixture.pid().to_string(), fixture.pid().to_string());
    let commands: [&[&str]; 11] = [
        &["why"],
        &["threads"],
        &["locks"],
        &["tsd"],
        &["doctor"],
        &["stats", "-i", "20ms"],
        &["profil", "--wait", "-d", "20ms"],
        &["contend", "-d", "20ms"],
        &["detach"],
        &["suspend", &lwp, "--for", "1ms"],
        &["set", "left", "0"],
    ];
    for command in commands {
        for (which, target) in [("name", &[name.as_str()][..]), ("-p", &["-p", &pid]), ("--pid", &["--pid", &pid])] {
            // The process comes first; -p may stand anywhere.
            let args = [&command[..1], target, &command[1..]].concat();
            let answer = tool().run(&args);
            let expected = if command[0] == "why" { 1 } else { 0 };
            assert_eq!(answer.code, Some(expected), "{args:?}: {}", answer.stderr);
            let told = command[0] == "doctor" || command[0] == "contend" || answer.text().contains(&pid);
            assert!(told, "{which}: {}", answer.text());
        }
    }
    // Both are one too many.
    for args in [&["threads", &name, "-p", &pid][..], &["set", &name, "left", "0", "-p", &pid]] {
        assert_eq!(tool().run(args).code, Some(2), "{args:?}");
    }
    tool().run(&["set", "--undo", &name, "-p", &pid]).assert_refused();
    for args in [&["set", "-p", &pid, "left"][..], &["suspend", "-p", &pid, "x"], &["set", &name, "left", "much"]] {
        tool().run(args).assert_refused();
    }
}

/// The name of the kernel, of the executable, and that by which it was started.
#[test]
fn a_process_has_several_names() {
    let public = Public::new();
    // Longer than what the kernel keeps.
    let (file, title) = (unique("a-long-name-of-a-program-"), unique("title"));
    let mut command = Command::new(public.copy(&built("tsd.c"), &file));
    command.arg0(format!("/somewhere/else/{title}"));
    let fixture = Fixture::command(command).settled();
    for name in [&file, &title] {
        assert_eq!(tool().look("threads", name, &[])["target"]["pid"], fixture.pid(), "{name}");
    }
    for no_name in [&file[..15], &title[..5], &title.to_uppercase(), &format!("else/{title}")] {
        // The first is what the kernel keeps, and is shared with whoever begins in the same way.
        let answer = tool().run(&["threads", no_name]);
        assert!(no_name == &file[..15] || answer.code == Some(2), "{no_name}: {}", answer.text());
    }
}

#[test]
fn a_name_of_several_processes_lists_them() {
    let public = Public::new();
    let name = unique("several");
    let program = public.copy(&built("tsd.c"), &name);
    let fixtures: Vec<Fixture> = (0..12).map(|_| Fixture::start(&program, &[])).collect();
    for verb in ["threads", "stats", "doctor"] {
        let answer = tool().run(&[verb, &name]);
        assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""), "{}", answer.stderr);
        let lines: Vec<&str> = answer.stderr.lines().collect();
        assert!(lines[0].contains(&format!("12 processes are called `{name}`")), "{}", answer.stderr);
        assert_eq!(lines.len(), 12, "{}", answer.stderr);
        assert_eq!(lines[11].trim(), ".. and 2 more");
        let mut pids: Vec<i32> = fixtures.iter().map(Fixture::pid).collect();
        pids.sort_unstable();
        for (line, pid) in lines[1..11].iter().zip(pids) {
            let mut words = line.split_whitespace();
            assert_eq!(words.next(), Some(pid.to_string().as_str()), "{line}");
            assert!(words.next().is_some_and(|comm| name.starts_with(comm)), "{line}");
            assert!(line.ends_with(&format!("/{name}")) || line.ends_with(".."), "the command line: {line}");
        }
    }
}

/// Those with most threads come first: a look is most likely wanted of one of them.
#[test]
fn without_a_target_candidates_are_listed() {
    let fixture = start("hostile_lists.c", &["keys", "50"]);
    for verb in ["threads", "locks", "tsd"] {
        let answer = tool().run(&[verb]);
        assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""), "{}", answer.stderr);
        let lines: Vec<&str> = answer.stderr.lines().collect();
        assert!(lines[0].contains("no target was named (give a PID"), "{}", answer.stderr);
        let own = lines.iter().find(|line| line.trim_start().starts_with(&format!("{} ", fixture.pid())));
        assert!(own.is_none_or(|line| line.ends_with("(51 threads)")), "{}", answer.stderr);
        assert!(own.is_some() || lines.len() > 10, "{}", answer.stderr);
    }
}

/// Somebody else's process may call itself anything.
#[test]
fn names_that_would_drive_a_terminal() {
    let public = Public::new();
    let name = unique("evil");
    let program = public.copy(&built("tsd.c"), &name);
    let evil = |text: &[u8]| {
        let mut command = Command::new(&program);
        command.arg0(OsStr::from_bytes(text)).arg(OsStr::from_bytes(b"\x1b[2J\n99999  nginx\xff\xc2\x9b"));
        Fixture::command(command)
    };
    let _fixtures = [evil(b"one\x1b[31m\r"), evil(b"\x7ftwo\nthree")];
    let answer = tool().run(&["why", &name]);
    assert_eq!(answer.code, Some(2), "{}", answer.stderr);
    assert_eq!(answer.stderr.lines().count(), 3, "{}", answer.stderr);
    assert!(
        answer.stderr.chars().all(|c| c == '\n' || c == '\u{fffd}' || matches!(c, ' '..='~')),
        "{:?}",
        answer.stderr
    );
}

#[test]
fn a_name_that_nobody_has() {
    for verb in ["why", "threads", "locks", "tsd", "stats", "profil", "contend", "detach", "doctor"] {
        let answer = tool().run(&[verb, "no such thing"]);
        let line = answer.assert_refused();
        assert!(
            line.contains("no process is called `no such thing`") && line.contains("no such file"),
            "{verb}: {line}"
        );
    }
    for args in [&["suspend", "no such thing", "1"][..], &["set", "no such thing", "left", "0"]] {
        assert!(tool().run(args).assert_refused().contains("no process is called `no such thing`"));
    }
    // A file is no process, and says so where only a process will do.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no core").unwrap();
    let file = file.to_str().unwrap();
    assert!(tool().run(&["stats", file]).assert_refused().contains("needs a running process"));
    assert!(!tool().run(&["why", file]).assert_refused().contains("no process"));
    let answer = tool().run(&["why", dir.path().to_str().unwrap()]);
    assert!(answer.assert_refused().contains("a directory is not a core file"), "{}", answer.stderr);
}

/// In a directory with a file of that name, the file is meant; by its PID the process is.
#[test]
fn a_file_comes_before_a_process() {
    let public = Public::new();
    let name = unique("both");
    let fixture = Fixture::start(&public.copy(&built("tsd.c"), &name), &[]).settled();
    let mut command = tool().command(&["threads", &name]);
    command.current_dir(public.path());
    let line = Answer::of(command).assert_refused().to_owned();
    assert!(line.contains("core"), "{line}");
    let mut command = tool().command(&["stats", &name, "-i", "10ms", "--json"]);
    command.current_dir(public.path());
    assert_eq!(Answer::of(command).json()["target"]["pid"], fixture.pid(), "where no core is possible");
}

/// Neither the tool itself nor the shell that started it is meant by a name.
#[test]
fn the_own_shell_is_never_meant() {
    let public = Public::new();
    let name = unique("shell");
    let shell = linked(&public, "/bin/sh", &name);
    let run = |words: &str| {
        let mut command = Command::new(&shell);
        command.args(["-c", &format!("{} {words}; code=$?; exit $code", env!("CARGO_BIN_EXE_tglass"))]);
        Answer::of(command)
    };
    let line = run(&format!("why {name}")).assert_refused().to_owned();
    assert!(line.contains(&format!("only tglass or what started it is called `{name}`")), "{line}");
    let fixture = Fixture::start(&public.copy(&built("tsd.c"), unique("x")), &[]).settled();
    let mut command = Command::new(public.path().join(unique("x")));
    command.arg0(&name);
    let same = Fixture::command(command).settled();
    let answer = run(&format!("threads {name} --json"));
    assert_eq!(answer.json()["target"]["pid"], same.pid(), "not the shell, nor {}", fixture.pid());
}

#[test]
fn the_tool_itself_is_never_meant() {
    let public = Public::new();
    let name = unique("itself");
    let mut command = Command::new(linked(&public, env!("CARGO_BIN_EXE_tglass"), &name));
    command.args(["threads", &name]);
    let line = Answer::of(command).assert_refused().to_owned();
    assert!(line.contains("only tglass or what started it"), "{line}");
}

/// A process that hangs, one that does not, and one that waits for itself.
fn three() -> [Fixture; 3] {
    [start("deadlocks.c", &["abba"]), start("tsd.c", &[]), start("deadlocks.c", &["self"])]
}

#[test]
fn several_targets_one_after_another() {
    let fixtures = three();
    let pids: Vec<String> = fixtures.iter().map(|fixture| fixture.pid().to_string()).collect();
    let pids: Vec<&str> = pids.iter().map(String::as_str).collect();
    let answer = tool().run(&[&["why"], &pids[..]].concat());
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let text = answer.text();
    let places: Vec<usize> = pids.iter().map(|pid| text.find(&format!("(pid {pid})")).expect("a screen")).collect();
    assert!(places.is_sorted(), "{text}");
    for at in &places[1..] {
        let before = &text[..text[..*at].rfind('\n').unwrap()];
        assert!(before.ends_with('\n') && !before.ends_with("\n\n"), "one empty line between: {text}");
    }
    // -p adds to them.
    let lines = tool().run(&["why", pids[0], "-p", pids[1], "-p", pids[2], "--json"]);
    assert_eq!(lines.code, Some(1), "{}", lines.stderr);
    let told: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    let told: Vec<String> = told.iter().map(|document| document["target"]["pid"].to_string()).collect();
    assert_eq!(told, pids);
}

#[test]
fn a_target_that_cannot_be_seen_keeps_nobody_from_the_others() {
    let fixtures = three();
    let [abba, calm, own] = fixtures.each_ref().map(|fixture| fixture.pid().to_string());
    let status = |args: &[&str]| tool().run(&[&["why"], args].concat());
    let answer = status(&[NOBODYS_PID, &calm, "no such thing", &own, "--json"]);
    assert_eq!((answer.code, answer.text().lines().count()), (Some(1), 2), "{}", answer.stderr);
    assert_eq!(answer.stderr.lines().count(), 2, "{}", answer.stderr);
    assert_eq!(status(&[&calm, NOBODYS_PID]).code, Some(2));
    assert_eq!(status(&[&calm, &calm]).code, Some(0));
    assert_eq!(status(&[&abba, NOBODYS_PID, "--fail-on", "never"]).code, Some(2));
    assert_eq!(status(&[&abba, &own, "--fail-on", "never"]).code, Some(0));
    assert_eq!(status(&[&abba, "--fail-on", "never"]).code, Some(0));
    assert_eq!(status(&[NOBODYS_PID, "--fail-on", "never"]).code, Some(2));
    assert_eq!(status(&[&calm, "--fail-on", "likely"]).code, Some(0));
    assert_eq!(status(&[&abba, "--fail-on", "often"]).code, Some(2));
}

/// The holders of Rust's locks are inferred: such a circle is likely at most.
#[test]
fn a_likely_hang_has_a_status_of_its_own() {
    let likely = start("deadlock_rust.rs", &["arc"]);
    let fixtures = three();
    let [abba, calm, _] = fixtures.each_ref().map(|fixture| fixture.pid().to_string());
    let pid = likely.pid().to_string();
    let answer = tool().run(&["why", &pid, "--fail-on", "likely", "--json"]);
    let certainty: Vec<Value> =
        answer.json()["findings"].as_array().unwrap().iter().map(|it| it["certainty"].clone()).collect();
    assert_eq!(certainty, ["likely"], "the fixture has a circle that is likely");
    assert_eq!(answer.code, Some(3), "{}", answer.stderr);
    let status = |args: &[&str]| tool().run(&[&["why", &pid], args].concat()).code;
    assert_eq!(status(&[]), Some(0));
    assert_eq!(status(&["--fail-on", "certain"]), Some(0));
    assert_eq!(status(&["--fail-on", "never"]), Some(0));
    assert_eq!(status(&[&calm, NOBODYS_PID, "--fail-on", "likely"]), Some(3));
    assert_eq!(status(&[&abba, "--fail-on", "likely"]), Some(1));
    assert_eq!(status(&[NOBODYS_PID]), Some(2));
}

#[test]
fn looks_are_repeated_for_as_long_as_is_asked() {
    let calm = start("deadlocks.c", &["chain_read"]);
    let pid = calm.pid().to_string();
    let looks = |options: &[&str]| tool().look("why", &pid, options)["looks"].as_u64().expect("a number");
    assert_eq!(looks(&["-d", "0"]), 1);
    let usual = looks(&[]);
    assert!(usual > 1);
    assert!(looks(&["-d", "1.2s"]) > usual, "longer");
    for bad in ["soon", "-1", "1m30"] {
        assert_eq!(tool().run(&["why", &pid, "-d", bad]).code, Some(2), "{bad}");
    }
    // What is certain at once needs no more.
    let hung = start("deadlocks.c", &["abba"]);
    let answer = tool().run(&["why", &hung.pid().to_string(), "-d", "10m", "--json"]);
    assert_eq!((answer.code, answer.json()["looks"].as_u64()), (Some(1), Some(1)));
}

/// Where perf is forbidden nothing tells where a thread runs, unless it may be stopped for a moment.
#[test]
fn running_threads_are_stopped_only_if_asked_and_needed() {
    let spin = Fixture::new("stack_spin.c");
    let pid = spin.pid().to_string();
    let seccomp = Build::new("no_perf.c").path();
    let without_perf = |options: &[&str]| {
        let mut command = Command::new(&seccomp);
        command.arg(env!("CARGO_BIN_EXE_tglass")).args(["why", &pid, "--json"]).args(options);
        let answer = Answer::of(command);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        answer.json()
    };
    let in_spin = |snapshot: &Value| {
        let threads = snapshot["threads"].as_array().unwrap().iter();
        threads.filter(|thread| thread["frames"].to_string().contains("spin_inner")).count()
    };
    let blind = without_perf(&["-d", "0"]);
    assert_eq!((in_spin(&blind), blind["pause_us"].as_u64()), (0, Some(0)), "{blind:#}");
    assert!(blind["gaps"].to_string().contains("--stop"), "{:#}", blind["gaps"]);
    let seen = without_perf(&["-d", "0", "--stop"]);
    assert_eq!(in_spin(&seen), 3, "{seen:#}");
    assert!(seen["pause_us"].as_u64() > Some(0) && !seen["gaps"].to_string().contains("--stop"), "{seen:#}");
    let groups = seen["groups"].as_array().unwrap();
    let running: usize = (groups.iter().filter(|group| group["frames"].to_string().contains("spin_inner")))
        .map(|group| group["threads"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!(running, 3, "{groups:#?}");
    // Samples take nothing from the process, so who was sampled is not stopped.
    let sampled = tool().look("why", &pid, &["--stop", "-d", "1s"]);
    let watched = sampled["threads"].as_array().unwrap().iter().filter(|thread| !thread["watched"].is_null()).count();
    if watched < 3 {
        return skip(
            part("running_threads_are_stopped_only_if_asked_and_needed"),
            "perf has not sampled all threads here",
        );
    }
    assert_eq!(sampled["pause_us"], 0, "{sampled:#}");
}

/// A core is named by its path, beside processes; there is nothing in it to stop.
#[test]
fn a_core_beside_processes() {
    let test = "a_core_beside_processes";
    let mut dumpable = Dumpable::start(&built("deadlocks.c"), &["abba"]);
    dumpable.fixture = dumpable.fixture.settled();
    let pid = dumpable.fixture.pid();
    let Some(core) = dumpable.gcore(test) else { return };
    let calm = start("tsd.c", &[]);
    let answer = tool().run(&["why", &calm.pid().to_string(), &core.name(), "--json"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let told: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    assert_eq!((&told[0]["target"]["pid"], &told[1]["target"]["pid"]), (&calm.pid().into(), &pid.into()));
    let line = tool().run(&["why", "--stop", &core.name()]).assert_refused().to_owned();
    assert!(line.contains("--stop needs a running process"), "{line}");
    assert_eq!(tool().run(&["locks", &core.name(), "--address", "left"]).code, Some(0));
}

fn locks_called(pid: &str, name: &str) -> Value {
    tool().look("locks", pid, &["--address", name])
}

#[test]
fn locks_by_the_names_of_their_variables() {
    let fixture = start("deadlocks.c", &["abba"]);
    let pid = fixture.pid().to_string();
    let all = tool().look("locks", &pid, &["--all"]);
    let named: Vec<(&str, &Value)> = (all["objects"].as_array().unwrap().iter())
        .filter_map(|lock| Some((lock["name"].as_str()?, &lock["address"])))
        .collect();
    for name in ["left", "left_too", "strict", "links[1]"] {
        let found = locks_called(&pid, name);
        let (_, at) = named.iter().find(|(known, _)| *known == name).expect("a variable of the fixture");
        assert_eq!(found["objects"][0]["address"], **at, "{name}: {found:#}");
        // And with what is printed.
        let same = locks_called(&pid, &format!("{:#x}", address(at)));
        assert_eq!(found["objects"], same["objects"], "{name}");
    }
    for (name, says) in
        [("middle", "no lock is called `middle`"), ("eft", "no lock is called"), ("0xleft", "not an address")]
    {
        for args in [&["locks", &pid, "--address", name][..], &["set", &pid, name, "0"]] {
            let answer = tool().run(args);
            assert!(answer.assert_refused().contains(says), "{name}: {}", answer.stderr);
        }
    }
    // Without a variable of that name, it is an address.
    assert!(tool().run(&["set", &pid, "face", "0"]).assert_refused().contains("0xface"));
    let plan = tool().look("set", &pid, &["left", "0"]);
    assert_eq!(plan["object"]["name"], "left", "{plan:#}");
}

#[test]
fn parts_of_names_and_names_of_several_locks() {
    let fixture = start("names_data.cc", &[]);
    let pid = fixture.pid().to_string();
    let all = tool().look("locks", &pid, &["--all"]);
    let names: Vec<&str> = all["objects"].as_array().unwrap().iter().filter_map(|lock| lock["name"].as_str()).collect();
    assert!(names.contains(&"ns::lock_a") && names.contains(&"ns::Config::guard"), "{names:?}");
    for (name, whole) in
        [("ns::lock_a", "ns::lock_a"), ("lock_a", "ns::lock_a"), ("Config::guard", "ns::Config::guard")]
    {
        assert_eq!(locks_called(&pid, name)["objects"][0]["name"], whole, "{name}");
    }
    let fixture = start("names_data.c", &[]);
    let pid = fixture.pid().to_string();
    assert_eq!(locks_called(&pid, "shards[3].mu")["objects"][0]["name"], "registry.shards[3].mu");
    // In no variable, but named where it is used.
    assert_eq!(locks_called(&pid, "account_t::first")["objects"][0]["name"], "account_t::first");
    for args in [&["locks", &pid, "--address", "mu"][..], &["set", "-p", &pid, "mu", "0", "--yes"]] {
        let answer = tool().run(args);
        assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""), "{}", answer.stderr);
        let lines: Vec<&str> = answer.stderr.lines().collect();
        assert!(lines[0].contains(" locks are called `mu`"), "{}", answer.stderr);
        assert!(
            lines.len() > 2 && lines[1..].iter().all(|line| line.contains("mu") || line.contains(" more")),
            "{lines:?}"
        );
        assert!(lines[1].trim().starts_with("0x"), "{lines:?}");
    }
}
