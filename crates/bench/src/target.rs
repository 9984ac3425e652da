//! A running program to look at.

use crate::context::Context;
use anyhow::{Context as _, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process with a known number of threads, all of them asleep. Ended when dropped; it also ends
/// by itself when this process dies in any other way, because its standard input closes then.
pub struct Target(Child);

impl Target {
    /// Starts one and waits until all its threads wait.
    pub fn start(context: &Context, threads: u32) -> Result<Self> {
        Self::start_program(context, "many_threads", threads)
    }

    /// The same with another program.
    pub fn start_program(context: &Context, name: &str, threads: u32) -> Result<Self> {
        let child = Command::new(context.programs.path(name))
            .arg(threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the target")?;
        let mut target = Self(child);
        let mut ready = String::new();
        BufReader::new(target.0.stdout.take().context("no output from the target")?).read_line(&mut ready)?;
        anyhow::ensure!(
            ready.trim_end() == format!("ready {threads}"),
            "the target could not start {threads} threads (limits: ulimit -u, kernel.threads-max, kernel.pid_max, \
             vm.max_map_count, pids.max of the control group)"
        );
        Ok(target)
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
