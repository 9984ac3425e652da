//! A running fixture.

use crate::end::end;
use crate::{Build, Variant, holds_within, wait_asleep};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Only a fixture that hangs takes this long, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running program, ended when this is dropped.
#[derive(Debug)]
pub struct Fixture {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    truth: Value,
}

impl Fixture {
    /// Builds and starts a fixture in its usual form.
    pub fn new(file: &str) -> Self {
        Self::start(&Build::new(file).variant(Variant::Default).path(), &[])
    }

    /// Starts a built fixture with arguments, and waits until it is ready.
    pub fn start(path: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(path);
        command.args(args);
        Self::command(command)
    }

    /// Starts any command that speaks a fixture's language, and waits until it is ready.
    pub fn command(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A program that a test has just copied counts as open for writing while another test's child, which
        // was forked meanwhile, has not executed its own yet.
        let mut started = command.spawn();
        holds_within(Duration::from_secs(60), || {
            let is_busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
            if started.as_ref().is_err_and(is_busy) {
                started = command.spawn();
            }
            !started.as_ref().is_err_and(is_busy)
        });
        let mut child = started.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("its output is a pipe");
        let (sender, lines) = channel();
        // A thread, so that a fixture which says nothing fails its test instead of hanging it.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut fixture = Self { child, stdin, lines, truth: Value::Null };
        let mut text = String::new();
        loop {
            let line = fixture.line();
            if line == "ready" {
                break;
            }
            text += &line;
            text.push('\n');
        }
        if !text.is_empty() {
            fixture.truth =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("the truth is not JSON: {error}\n{text}"));
        }
        fixture
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// What it said about itself.
    pub fn truth(&self) -> &Value {
        &self.truth
    }

    /// Waits until its main thread, which has just said `ready`, sleeps.
    pub fn settled(self) -> Self {
        wait_asleep(self.pid(), self.pid());
        self
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("the fixture reads its input");
    }

    /// The next line it prints.
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the fixture says nothing"),
            Err(RecvTimeoutError::Disconnected) => panic!("the fixture ended: {:?}", self.child.wait()),
        }
    }

    /// Sends a line and reads the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// Waits until the number of rounds, which the program tells when asked, is larger than `rounds`, and takes note of it.
    pub fn goes_on(&mut self, rounds: &mut u64) {
        let before = *rounds;
        crate::eventually("the fixture itself should go on", || {
            *rounds = self.ask("").parse().expect("a number of rounds");
            *rounds > before
        });
    }

    /// Kills it at once; it is collected when this is dropped, so until then it is a zombie.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
