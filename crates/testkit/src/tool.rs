//! Running the tool and reading its answer.

use crate::{end_with_descendants, holds_within};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A look takes milliseconds; only one that hangs takes this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// A compiler, or a program that tries out thousands of things, takes minutes on a busy machine.
const LONG_PATIENCE: Duration = Duration::from_secs(900);

/// The `tglass` binary under test.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, raw.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Tool {
    /// The tool at `path`: `env!("CARGO_BIN_EXE_tglass")` in its own tests.
    pub fn new(path: &str) -> Self {
        Self { path: path.into() }
    }

    /// A command that runs it.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args);
        command
    }

    /// Runs it to its end.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Answer {
        Answer::of(self.command(args))
    }

    /// `tglass threads PID --json`, with more options; the look must succeed.
    pub fn threads(&self, pid: i32, options: &[&str]) -> Value {
        self.json("threads", pid, options)
    }

    /// `tglass tsd PID --json`; the look must succeed.
    pub fn tsd(&self, pid: i32) -> Value {
        self.json("tsd", pid, &[])
    }

    fn json(&self, verb: &str, pid: i32, options: &[&str]) -> Value {
        self.look(verb, &pid.to_string(), options)
    }

    /// `tglass VERB TARGET --json`, with more options; the look must succeed.
    pub fn look(&self, verb: &str, target: &str, options: &[&str]) -> Value {
        let mut args = vec![verb, target, "--json"];
        args.extend(options);
        let answer = self.run(&args);
        assert_eq!(answer.code, Some(0), "{args:?}: {}", answer.stderr);
        answer.json()
    }
}

impl Answer {
    /// Runs any command to its end and collects what it says.
    pub fn of(command: Command) -> Self {
        Self::within(PATIENCE, command)
    }

    /// [`Self::of`] a command that may take minutes.
    pub fn of_long(command: Command) -> Self {
        Self::within(LONG_PATIENCE, command)
    }

    fn within(patience: Duration, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let deadline = Instant::now() + patience;
        let mut nap = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() > deadline {
                end_with_descendants(&mut child);
                panic!("{command:?} does not end");
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(20));
        };
        let text = |handle: JoinHandle<Vec<u8>>| {
            // What it started may hold the pipe open.
            assert!(holds_within(PATIENCE, || handle.is_finished()), "something of {command:?} does not end");
            handle.join().unwrap_or_default()
        };
        Self { code: status.code(), stdout: text(stdout), stderr: String::from_utf8_lossy(&text(stderr)).into_owned() }
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON: {error}\n{}\n{}", self.text(), self.stderr))
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Checks that the tool refused as it promises: status 2, one line, no panic, nothing on standard
    /// output.
    pub fn assert_refused(&self) -> &str {
        assert_eq!(self.code, Some(2), "{}{}", self.text(), self.stderr);
        assert!(self.stdout.is_empty(), "{}", self.text());
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "more than one line: {}", self.stderr);
        self.stderr.trim_end()
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The threads of a snapshot.
pub fn threads(snapshot: &Value) -> &[Value] {
    snapshot["threads"].as_array().map_or(&[], Vec::as_slice)
}

/// The thread of a snapshot with this LWP.
pub fn thread(snapshot: &Value, lwp: i64) -> &Value {
    let found: Vec<_> = threads(snapshot).iter().filter(|thread| thread["lwp"] == lwp).collect();
    assert_eq!(found.len(), 1, "thread {lwp} should be there once: {snapshot:#}");
    found[0]
}
