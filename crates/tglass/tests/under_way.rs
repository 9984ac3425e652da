//! Descriptors that are on their way from one process to another: whoever gets them may have the other end of any pipe.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use testkit::{Build, Fixture, Tool, Value, have};

/// The verdict, and the words about the wait of the thread that writes.
fn answer(pid: i32) -> (Value, String) {
    let seen = Tool::new(env!("CARGO_BIN_EXE_tglass")).look("why", &pid.to_string(), &[]);
    let waits = testkit::threads(&seen).iter().filter_map(|thread| thread["waits_outside"]["text"].as_str());
    (seen["verdict"].clone(), waits.collect())
}

/// A pipe that only its process has is a hang, unless somebody may be about to get it.
#[test]
fn an_end_that_may_be_on_its_way() {
    if !have("an_end_that_may_be_on_its_way", "python3") {
        return;
    }
    let fixture = Fixture::start(&Build::new("hangs.c").path(), &["own_pipe"]).settled();
    let script = "import socket, sys\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [0])\n\
                  print('sent', flush=True)\nsys.stdin.read()";
    let mut command = Command::new("python3");
    let mut sender =
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut line = String::new();
    let read = BufReader::new(sender.stdout.take().expect("its output")).read_line(&mut line);
    let (verdict, waits) = answer(fixture.pid());
    sender.kill().and_then(|()| sender.wait()).expect("it ends");
    assert!(read.is_ok() && line == "sent\n", "{line}");
    assert_eq!(verdict["kind"], "behind", "{verdict:#}");
    assert!(waits.contains("descriptors are on their way"), "{waits}");
}
