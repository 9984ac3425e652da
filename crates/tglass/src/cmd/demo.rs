//! `tglass demo`: a program of our own that deadlocks, explained from outside.

use crate::cli::DemoArgs;
use crate::{remedy, render};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;
use threadglass::target::Live;
use threadglass::{Pid, look};

/// Ends the child when the demo ends, also when it fails.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let exe = std::env::current_exe().context("cannot find my own executable")?;
    let mut child = Guard(
        Command::new(exe)
            .arg("demo-child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the demo program")?,
    );
    let mut ready = String::new();
    BufReader::new(child.0.stdout.take().context("no output from the demo program")?).read_line(&mut ready)?;

    let pid = Pid(child.0.id() as i32);
    let started = Instant::now();
    let live = Live::open(pid)?;
    let mut snapshot = look::explain(&live)?;
    remedy::of_gaps(&mut snapshot.gaps);
    if args.json {
        return super::print_json(&snapshot);
    }
    let mut text = format!("A small program that hangs was started as pid {pid}. This is `tglass why {pid}`:\n\n");
    text += &render::why::text(&snapshot, started.elapsed());
    text += "\nIt was neither prepared nor stopped for this. The program has been ended again.\n\
             Next: `tglass why PID` on a process of yours that hangs, `tglass threads PID` on any,\n\
             `tglass doctor` when something is not permitted.\n";
    super::print(&text)
}

/// The program that is looked at.
pub fn child() -> Result<ExitCode> {
    tglass_demo::deadlock()?;
    Ok(ExitCode::SUCCESS)
}
