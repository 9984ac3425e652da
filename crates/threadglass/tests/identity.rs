//! Whether a process is still the program that was opened.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use threadglass::Pid;
use threadglass::target::{Live, TargetError};

/// How a shell that was opened is seen to end, once it gets a line and goes on with `then`.
fn first_change(then: &str) -> TargetError {
    let script = format!("echo; read line; {then}");
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh is there");
    let mut ready = [0];
    std::io::Read::read_exact(shell.stdout.as_mut().expect("a pipe"), &mut ready).expect("the shell runs");
    let live = Live::open(Pid(shell.id() as i32)).expect("it runs");
    shell.stdin.take().expect("a pipe").write_all(b"\n").expect("the shell reads");
    // Without a nap: it is the very first moment that matters.
    let deadline = Instant::now() + Duration::from_secs(60);
    let change = loop {
        match live.check_identity() {
            Err(change) => break Some(change),
            Ok(()) if Instant::now() > deadline => break None,
            Ok(()) => {}
        }
    };
    let _ = shell.kill();
    shell.wait().expect("it is ours");
    change.expect("a change within a minute")
}

/// The address space goes a moment before the process does: that is an end, not an exec.
#[test]
fn an_end_is_not_an_exec() {
    for _ in 0..200 {
        assert!(matches!(first_change("exit 0"), TargetError::Exited(_)));
    }
}

#[test]
fn an_exec_is_not_an_end() {
    for _ in 0..50 {
        assert!(matches!(first_change("exec sleep 100"), TargetError::Execed(_)));
    }
}
