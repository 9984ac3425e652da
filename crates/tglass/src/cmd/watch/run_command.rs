//! The command that is run for each event.

use crate::render::json;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use threadglass::Pid;
use threadglass::model::WatchEvent;

/// How long one may take, and how many may run at a time.
const MOST_TIME: Duration = Duration::from_secs(60);
const MOST: usize = 8;

/// Runs a command of the shell, and sees to it that it ends.
pub struct Runner {
    command: OsString,
    running: Vec<(Child, Instant)>,
}

impl Runner {
    pub fn new(command: OsString) -> Self {
        Self { command, running: Vec::new() }
    }

    /// Starts the command for `event`. Nobody waits for it.
    pub fn run(&mut self, event: &WatchEvent) -> Result<()> {
        self.reap()?;
        anyhow::ensure!(self.running.len() < MOST, "--exec: {MOST} commands still run, so this event gets none");
        let mut line = Vec::new();
        json::compact(&mut line, event)?;
        line.push(b'\n');
        let mut command = Command::new("/bin/sh");
        // A group of its own, so that all that it starts can be ended with it.
        command.arg("-c").arg(&self.command).stdin(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("--exec: cannot start /bin/sh")?;
        if let Some(mut input) = child.stdin.take() {
            // A command that does not read must not stop us. The thread ends with the command.
            let write = move || drop(input.write_all(&line));
            thread::Builder::new().name("tg-exec".to_owned()).spawn(write).context("--exec")?;
        }
        self.running.push((child, Instant::now()));
        Ok(())
    }

    /// Takes note of commands that have ended, and ends those that take too long.
    pub fn reap(&mut self) -> Result<()> {
        let mut late = false;
        self.running.retain_mut(|(child, begun)| {
            if !matches!(child.try_wait(), Ok(None)) {
                return false;
            }
            if begun.elapsed() > MOST_TIME {
                end(child);
                late = true;
                return false;
            }
            true
        });
        anyhow::ensure!(!late, "--exec: the command took longer than {} s and was ended", MOST_TIME.as_secs());
        Ok(())
    }

    /// Whether `pid` is one of the commands.
    pub fn has(&self, pid: Pid) -> bool {
        self.running.iter().any(|(child, _)| child.id() as i32 == pid.0)
    }

    /// Waits a moment for those that run.
    pub fn finish(&mut self) {
        let begun = Instant::now();
        while !self.running.is_empty() && begun.elapsed() < Duration::from_secs(2) {
            let _ = self.reap();
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ends a command with all that it has started, as far as that stayed in its group.
fn end(child: &mut Child) {
    let group = nix::unistd::Pid::from_raw(child.id() as i32);
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    let _ = child.wait();
}
