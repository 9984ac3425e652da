//! gdbserver with our library: thread-local variables of a remote program.

mod common;

use common::{Source, as_libthread_db, tls_libraries};
use std::path::PathBuf;
use std::process::Command;
use testkit::{Answer, Fixture, Public, Value, have, threads};

/// Runs gdb on the other end of a gdbserver that was started with these arguments; what both say.
fn remote(ours: bool, program: &str, server_args: &str, commands: &[&str]) -> String {
    let dir = Public::new();
    let log = dir.path().join("log");
    let mut connect = "target remote | ".to_owned();
    if ours {
        connect += &format!("env LD_LIBRARY_PATH={} ", as_libthread_db().display());
    }
    connect += &format!("gdbserver --once --debug --debug-file={} {server_args}", log.display());
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-iex", "set pagination off", "-iex", "set width 0", "-iex", "set sysroot /"]);
    // Two seconds, its default, are short on a busy machine, and gdb does not recover from what comes late.
    command.args(["-iex", "set remotetimeout 120"]);
    command.args(["-iex", "set debuginfod enabled off", "-ex", &connect]);
    for line in commands {
        command.args(["-ex", line]);
    }
    command.arg(program);
    let answer = Answer::of(command);
    let text = (answer.text() + &answer.stderr).replace("warning: Source file is more recent than executable.", "");
    let log = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    if ours {
        let loaded = format!("resolved to: {}/libthread_db.so.1", as_libthread_db().display());
        assert!(log.contains(&loaded), "gdbserver did not load our library:\n{text}");
        assert!(!text.contains("warning:") && !text.contains("Cannot"), "a complaint:\n{text}");
    }
    text
}

fn installed(test: &str) -> bool {
    have(test, "gdb") && have(test, "gdbserver")
}

fn program() -> (PathBuf, String) {
    let (linked, loaded) = tls_libraries();
    (Source::new("debugged.c").link(&linked).build(), loaded.display().to_string())
}

fn values(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| Some(line.strip_prefix('$')?.split_once(" = ")?.1)).collect()
}

const LOOK: [&str; 4] = [
    "info threads",
    "thread apply all -q print own_value",
    "thread apply all -q print library_value",
    "thread apply all -q print loaded_value",
];
const WANTED: [&str; 15] = ["14", "13", "12", "11", "10", "24", "23", "22", "21", "20", "34", "33", "32", "31", "30"];

#[test]
fn run() {
    if !installed("gdbserver run") {
        return;
    }
    let (program, loaded) = program();
    let program = program.display().to_string();
    for ours in [true, false] {
        let commands = [
            &["break everyone_is_here", "continue"],
            &LOOK[..],
            &["thread 2", "set var own_value = 511", "set var loaded_value = 531", "continue"],
        ];
        let text = remote(ours, &program, &format!("- {program} {loaded}"), &commands.concat());
        assert_eq!(values(&text), WANTED, "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("\"worker-")).count(), 4, "{text}");
        // What was written is what the thread finds.
        let after = text.split_once("\nready").map_or("", |(_, after)| after);
        assert!(after.contains(r#""own":511,"library":21,"loaded":531"#), "{text}");
        assert!(text.contains("exited normally"), "{text}");
    }
}

#[test]
fn attach() {
    if !installed("gdbserver attach") {
        return;
    }
    let (program, loaded) = program();
    let mut fixture = Fixture::start(&program, &[&loaded]);
    let program = program.display().to_string();
    for ours in [true, false, true] {
        let commands = [&LOOK[..], &["thread 3", "set var library_value = library_value + 0", "detach"]];
        let text = remote(ours, &program, &format!("--attach - {}", fixture.pid()), &commands.concat());
        assert_eq!(values(&text), WANTED, "{text}");
        for thread in threads(fixture.truth()) {
            let shown = format!("Thread {}.{} ", fixture.pid(), thread["lwp"]);
            assert!(text.contains(&shown), "no {shown}:\n{text}");
        }
    }
    // The process survives, with its variables as they were.
    let after: Value = testkit::serde_json::from_str(&fixture.ask("finish")).expect("its truth as JSON");
    assert_eq!(&after, fixture.truth());
    assert_eq!(fixture.line(), "done");
}

#[test]
fn static_program() {
    if !installed("gdbserver static") || !testkit::has_static_libc("gdbserver static") {
        return;
    }
    let program = Source::new("debugged.c").flags(&["-static", "-DSTATIC"]).build().display().to_string();
    let commands = ["break everyone_is_here", "continue", "info threads", LOOK[1], "continue"];
    let mut seen = Vec::new();
    for ours in [true, false] {
        let text = remote(ours, &program, &format!("- {program}"), &commands);
        assert!(text.contains("exited normally"), "{text}");
        seen.push(values(&text).join(" "));
    }
    assert_eq!(seen, ["14 13 12 11 10"; 2]);
}
