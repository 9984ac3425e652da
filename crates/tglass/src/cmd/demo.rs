//! `tglass demo`: a program of our own that deadlocks, explained from outside.

use super::why;
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
    let exe = std::env::current_exe().context("cannot find the executable of tglass")?;
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
    let mut text = format!("Started a small program that hangs, pid {pid}. This is `tglass why {pid}`:\n\n");
    let settable = why::settable(&live, &snapshot);
    text += &render::why::text(&snapshot, started.elapsed(), settable, super::width(false));
    text += "\nThe program was not prepared or stopped for this. It has been ended.\n\
             Next: `tglass why PID` for a process that hangs, `tglass threads PID` for any process,\n\
             `tglass doctor` if permission is denied.\n";
    super::print(&text)
}

/// The program that is looked at.
pub fn child() -> Result<ExitCode> {
    tglass_demo::deadlock()?;
    Ok(ExitCode::SUCCESS)
}
