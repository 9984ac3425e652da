//! How true `tglass stats` is: threads that compute on CPUs they are bound to, beside the kernel's own counters and
//! beside what must come out where nobody else wants those CPUs.

use crate::context::Context;
use crate::report::{Budget, Section};
use crate::stats::median;
use crate::target::Target;
use anyhow::{Context as _, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Threads, and how many CPUs they have.
const CASES: [(u32, usize); 5] = [(1, 2), (2, 2), (4, 2), (8, 2), (4, 1)];
/// Seconds that count. One more is measured before: with it our own readings begin when tglass's do.
const SECONDS: u32 = 3;
/// How far a figure may be off, in per cent.
const MOST: f64 = 2.0;

/// Averages over a second.
#[derive(Clone, Copy, Debug)]
struct Averages {
    running: f64,
    runnable: f64,
}

impl Averages {
    /// How far the worse of the two is from `truth`, in per cent of it.
    fn off(&self, truth: &Self) -> f64 {
        let off = |value: f64, truth: f64| ((value / truth - 1.0) * 100.0).abs();
        off(self.running, truth.running).max(off(self.runnable, truth.runnable))
    }

    fn median_of(all: &[Self]) -> Option<Self> {
        let running = median(all.iter().map(|one| one.running))?;
        Some(Self { running, runnable: median(all.iter().map(|one| one.runnable))? })
    }

    fn words(&self) -> String {
        format!("{:.3} / {:.3}", self.running, self.runnable)
    }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let (mut budgets, mut notes) = (Vec::new(), Vec::new());
    for (threads, cpus) in CASES {
        let case = format!("{threads} threads on {cpus} CPUs");
        eprintln!("bench: stats, {case} ..");
        let Some(target) = start_on(context, threads, cpus)? else {
            notes.push(format!("{case}: there are not as many CPUs here"));
            continue;
        };
        let seconds = watch(context, target.pid())?;
        let all = |which: fn(&(Averages, Averages)) -> Averages| seconds.iter().map(which).collect::<Vec<_>>();
        let (ours, kernel) = (all(|second| second.0), all(|second| second.1));
        let (ours, kernel) =
            (Averages::median_of(&ours).context("none")?, Averages::median_of(&kernel).context("none")?);
        let expected = Averages { running: f64::from(threads).min(cpus as f64), runnable: f64::from(threads) };
        let off_kernel = median(seconds.iter().map(|(ours, kernel)| ours.off(kernel)));
        let off_expected = median(seconds.iter().map(|(ours, _)| ours.off(&expected)));
        budgets.push(Budget::at_most(&format!("{case}: off the kernel's counters by"), MOST, " %", off_kernel));
        let what = format!("{case}: off what a quiet machine would give by");
        budgets.push(Budget::at_most(&what, MOST, " %", off_expected));
        notes.push(format!(
            "{case}, a_concurrency / nrunnable: tglass {}, kernel's counters {}, on a quiet machine {}",
            ours.words(),
            kernel.words(),
            expected.words()
        ));
    }
    notes.push(
        "A CPU that others use too is not given to the program: then only the kernel's counters tell the truth."
            .to_owned(),
    );
    Ok(Section {
        name: "stats",
        title: format!("tglass stats: busy threads, the medians of {SECONDS} seconds"),
        groups: Vec::new(),
        budgets,
        notes,
    })
}

/// Starts threads that compute, on the first `cpus` CPUs that we may use; `None` if there are fewer.
fn start_on(context: &Context, threads: u32, cpus: usize) -> Result<Option<Target>> {
    let me = Pid::from_raw(0);
    let all = sched_getaffinity(me)?;
    let usable: Vec<_> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).take(cpus).collect();
    if usable.len() < cpus {
        return Ok(None);
    }
    let mut set = CpuSet::new();
    for cpu in usable {
        set.set(cpu)?;
    }
    // The child inherits it; tglass and we run where we like.
    sched_setaffinity(me, &set)?;
    let target = Target::start_program(context, "busy", threads);
    sched_setaffinity(me, &all)?;
    target.map(Some)
}

/// Each second as tglass and as the kernel's counters have it.
fn watch(context: &Context, pid: u32) -> Result<Vec<(Averages, Averages)>> {
    let count = (SECONDS + 1).to_string();
    let mut tglass = Command::new(&context.tglass)
        .args(["stats", &pid.to_string(), "-i", "1s", "-n", &count, "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(tglass.stdout.take().context("no output")?);
    let (mut seconds, mut before) = (Vec::new(), None::<Reading>);
    for line in output.lines() {
        // A line comes when its second is over and the next one begins.
        let line = line?;
        let now = Reading::of(pid)?;
        let stats: serde_json::Value = serde_json::from_str(&line).context("odd JSON of tglass")?;
        let figure = |name: &str| stats["process"][name].as_f64().with_context(|| format!("no {name} in the JSON"));
        let ours = Averages { running: figure("a_concurrency")?, runnable: figure("nrunnable")? };
        if let Some(before) = before.replace(now) {
            seconds.push((ours, before.until(&now)));
        }
    }
    ensure!(tglass.wait()?.success(), "`tglass stats` failed");
    Ok(seconds)
}

/// The kernel's counters, summed over the threads of a process.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    running_ns: u64,
    waiting_ns: u64,
}

impl Reading {
    fn of(pid: u32) -> Result<Self> {
        let mut reading = Self { at: Instant::now(), running_ns: 0, waiting_ns: 0 };
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let file: PathBuf = task?.path().join("schedstat");
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let mut words = text.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(running)), Some(Ok(waiting))) = (words.next(), words.next()) else {
                anyhow::bail!("odd {}: {text}", file.display());
            };
            reading.running_ns += running;
            reading.waiting_ns += waiting;
        }
        Ok(reading)
    }

    fn until(&self, later: &Self) -> Averages {
        let wall = (later.at - self.at).as_nanos() as f64;
        let running = (later.running_ns - self.running_ns) as f64 / wall;
        Averages { running, runnable: running + (later.waiting_ns - self.waiting_ns) as f64 / wall }
    }
}
