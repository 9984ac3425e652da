//! A `tglass watch` that runs beside a test.

#![allow(dead_code, reason = "each file of tests uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testkit::{Value, eventually, serde_json};

/// An event comes within some looks; only where something is wrong it takes this long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The watch, ended when this is dropped.
pub struct Watching {
    child: Child,
    events: Receiver<Value>,
    port: u16,
}

/// A port of the loopback that nobody uses just now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Watching {
    /// Begins `tglass watch --json` with these arguments and a port of its own, and waits for the first look.
    pub fn begin(args: &[&str]) -> Self {
        Self::begin_command(Command::new(env!("CARGO_BIN_EXE_tglass")), args)
    }

    pub fn begin_command(mut command: Command, args: &[&str]) -> Self {
        let port = free_port();
        command.arg("watch").args(args).args(["--json", "--listen", &format!("127.0.0.1:{port}")]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("tglass starts");
        let output = child.stdout.take().expect("a pipe");
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let watching = Self { child, events, port };
        eventually("the first look should be taken", || watching.looks() > 0);
        watching
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Status and body of a page.
    pub fn get(&self, path: &str) -> (u16, Vec<u8>) {
        get(self.port, path).unwrap_or_default()
    }

    pub fn text(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.get(path).1).into_owned()
    }

    /// The sample of a metric that has no labels, or whose labels are given.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.text("/metrics").lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    pub fn looks(&self) -> u64 {
        self.metric("tglass_looks_total").unwrap_or(0.0) as u64
    }

    /// The next event of a process; those of others go to `others`.
    pub fn event_of(&self, pid: i32, others: &mut Vec<Value>) -> Value {
        let until = Instant::now() + PATIENCE;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if event["process"]["pid"] == pid {
                return event;
            }
            others.push(event);
        }
        panic!("nothing was told of {pid}; of others: {others:?}")
    }

    /// The next event, whatever it is of.
    pub fn event(&self) -> Value {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    /// What has come by now.
    pub fn events(&self) -> Vec<Value> {
        self.events.try_iter().collect()
    }

    /// What a number in `/proc/PID/status` is.
    pub fn status(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    }

    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Asks it to end, and waits: its exit status.
    pub fn end(mut self) -> Option<i32> {
        testkit::signal(self.pid(), testkit::Signal::SIGTERM);
        let mut status = None;
        eventually("it should end", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for a page: its status and body.
pub fn get(port: u16, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(100)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let status = String::from_utf8_lossy(&answer[..head]);
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, answer[head..].to_vec()))
}

/// A copy of a program under a name that only this test uses, so that it can be watched by that.
pub fn named(program: &Path, dir: &Path, name: &str) -> (std::path::PathBuf, String) {
    let name = format!("{name}{}", std::process::id() % 100_000);
    assert!(name.len() <= 15, "{name}: the kernel cuts it");
    let path = dir.join(&name);
    std::fs::copy(program, &path).expect("a copy");
    (path, name)
}
