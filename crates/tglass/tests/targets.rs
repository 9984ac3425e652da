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
    let shell = public.copy("/bin/sh".as_ref(), &name);
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
