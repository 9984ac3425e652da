//! What `tglass watch` costs while nothing is wrong: CPU time as a part of one CPU, and memory.

use crate::across::Crowd;
use crate::context::Context;
use crate::report::{Budget, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A watch, ended when dropped.
struct Watch(Child);

impl Watch {
    fn begin(context: &Context, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(&context.tglass);
        command.arg("watch").args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start the watch")?))
    }

    fn read(&self, file: &str) -> Result<String> {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).context("the watch has ended")
    }

    /// CPU time so far, of all its threads, in seconds.
    fn cpu(&self) -> Result<f64> {
        const TICKS: f64 = 100.0;
        let stat = self.read("stat")?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let times: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        Ok(times.iter().sum::<f64>() / TICKS)
    }

    /// The most memory that it has had, in MiB.
    fn memory(&self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: f64 = line.split_whitespace().next().context("no number")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// The part of a CPU that it takes, in percent, after a time for what is looked at once.
    fn share(&self, before: Duration, time: Duration) -> Result<f64> {
        thread::sleep(before);
        let (begun, cpu) = (Instant::now(), self.cpu()?);
        thread::sleep(time);
        Ok((self.cpu()? - cpu) / begun.elapsed().as_secs_f64() * 100.0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: watch ..");
    let seconds = Duration::from_secs;
    let one = Target::start(context, 200)?;
    let watch = Watch::begin(context, &[&one.pid().to_string(), "--every", "1s"])?;
    let share_of_one = watch.share(seconds(5), seconds(20))?;
    drop((watch, one));
    let crowd = Crowd::start(context)?;
    // Of the processes of the crowd, whatever else runs on this machine.
    let watch = Watch::begin(context, &["crowd", "--every", "10s"])?;
    let share = watch.share(seconds(25), seconds(50))?;
    let memory = watch.memory()?;
    drop((watch, crowd));
    Ok(Section {
        name: "watch",
        title: "Watch: what looking always costs".to_owned(),
        groups: Vec::new(),
        budgets: vec![
            Budget::at_most("500 processes, 5,000 threads, every 10 s: part of one CPU", 1.5, " %", Some(share)),
            Budget::at_most("500 processes, 5,000 threads: memory", 100.0, " MiB", Some(memory)),
            Budget::at_most("one process, 200 threads, every second: part of one CPU", 1.0, " %", Some(share_of_one)),
        ],
        notes: vec!["Nothing is wrong there, and threads sleep; the figures are with closer looks.".to_owned()],
    })
}
