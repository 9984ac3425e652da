//! Programs whose files are made to harm who looks into them, seen through the C interface: calls end soon and take little
//! memory, also inside of a debugger that has better things to do.

mod common;

use common::Source;
use std::process::Command;
use testkit::hostile::{CASES, ObjectPatch};
use testkit::{Answer, Build, Fixture, Variant, have, serde_json};

/// What a client with a dozen calls may use: seconds of CPU time, and bytes.
const CPU: u32 = 20;
const MEMORY: u64 = 1 << 30;

#[test]
fn calls_about_a_program_with_a_hostile_file() {
    const NAMES: [&str; 6] = [
        "a packed section that is to be of 2^62 bytes",
        "a packed section of 4 GiB",
        "a symbol table of 6 GiB",
        "2^26 sections",
        "functions in four thousand pieces",
        "variables that are arrays of locks",
    ];
    if !have("calls_about_a_program_with_a_hostile_file", "prlimit") {
        return;
    }
    let client = Source::new("sync_dump.c").with_libc_db().build();
    let honest = Build::new("hostile_file.c").variant(Variant::Default).path();
    let cases: Vec<_> = CASES.iter().filter(|case| NAMES.contains(&case.name)).collect();
    assert_eq!(cases.len(), NAMES.len());
    for case in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hostile");
        (case.patch)(ObjectPatch::of(&honest)).write(&path);
        let fixture = Fixture::start(&path, &[]).settled();
        let mut command = Command::new("prlimit");
        command.args([format!("--cpu={CPU}"), format!("--data={MEMORY}"), "--core=0".to_owned()]);
        command.arg(&client).args(["pid", &fixture.pid().to_string()]);
        let answer = Answer::of(command);
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{case:?}: {}", answer.text());
        let seen: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        let waiter = &fixture.truth()["waiter"];
        let threads = seen["threads"].as_array().unwrap();
        let thread = threads.iter().find(|thread| thread["lwp"] == *waiter);
        assert!(thread.is_some_and(|thread| thread["sleep"].is_string()), "{case:?}: it waits for the mutex: {seen:#}");
    }
}
