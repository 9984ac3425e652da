//! `tglass threads` beside everything else that shows the threads of a process.

use crate::context::Context;
use crate::measure::{self, Outcome};
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::time::{Duration, Instant};

const FLOOR: &str = "floor";
const TGLASS: &str = "tglass threads";
/// Without the kernel's task iterator, which needs privileges: what an ordinary user gets, and the
/// same work as the floor's.
const TGLASS_PROC: &str = "tglass threads, /proc only";
const NO_ITERATOR: (&str, &str) = ("THREADGLASS_NO_BPF", "1");
const TGLASS_JSON: &str = "tglass threads --json";
const GDB: &str = "gdb info threads";
const STACKS: &str = "eu-stack -p";

/// Peers that stop the target are slow: this many rounds, and one where there are more threads.
const SLOW_ROUNDS: u32 = 3;
const MANY: u32 = 1_000;
/// eu-stack unwinds every thread; beyond this number it is no comparison any more.
const MOST_FOR_STACKS: u32 = 1_000;
/// Threads of the target on which the peers are tried out.
const TRIAL_THREADS: u32 = 3;
/// How long a target that was stopped and resumed may take to be at rest again.
const SETTLE: Duration = Duration::from_secs(30);

/// One way to see the threads.
struct Peer {
    name: &'static str,
    command: Vec<OsString>,
    env: Option<(&'static str, &'static str)>,
    /// Whether it stops the target.
    stops: bool,
    runs: Runs,
    /// Why it has no (more) figures.
    missing: Option<String>,
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let mut section = Section {
        name: "threads",
        title: "Threads of a process, all of them asleep in pthread_cond_wait".to_owned(),
        groups: Vec::new(),
        budgets: Vec::new(),
        notes: Vec::new(),
    };
    let small = Target::start(context, TRIAL_THREADS)?;
    let unusable: Vec<_> =
        peers(context, &small).iter().filter_map(|peer| Some((peer.name, unusable(peer)?))).collect();
    drop(small);
    let mut sizes = Vec::new();
    for threads in &context.threads {
        sizes.push(Size::measure(context, *threads, &unusable)?);
    }
    for size in &sizes {
        section.groups.push(size.group());
        section.budgets.extend(size.budgets());
    }
    section.budgets.extend(linearity(&sizes));
    section.notes.extend([
        "x floor: times the floor's wall time in the same round; gdb / it: how many times gdb's median time it is faster.".to_owned(),
        "floor: a C program that only reads each thread's stat, status and syscall files.".to_owned(),
        "tglass may use the kernel's task iterator when privileged (512 threads or more) and then does not read those files:".to_owned(),
        "  only the `/proc only` row does the same work as the floor.".to_owned(),
        "Budgets are for a quiet machine; the exit status does not depend on them.".to_owned(),
    ]);
    Ok(section)
}

/// All measurements with one number of threads.
struct Size {
    threads: u32,
    peers: Vec<Peer>,
    pause_us: f64,
}

impl Size {
    fn measure(context: &Context, threads: u32, unusable: &[(&str, String)]) -> Result<Self> {
        eprintln!("bench: {threads} threads ..");
        let target = Target::start(context, threads)?;
        let pause_us = check(context, &target, threads)?;
        let mut peers = peers(context, &target);
        for peer in &mut peers {
            peer.missing = match unusable.iter().find(|(name, _)| *name == peer.name) {
                Some((_, why)) => Some(why.clone()),
                None if peer.name == STACKS && threads > MOST_FOR_STACKS => {
                    Some(format!("not run beyond {MOST_FOR_STACKS} threads"))
                }
                None => None,
            };
        }
        // A first run of each fast one is not counted: it finds cold caches.
        for round in 0..=context.rounds {
            for peer in peers.iter_mut().filter(|peer| !peer.stops) {
                peer.run(context, round > 0)?;
            }
        }
        let slow_rounds = if threads > MANY { 1 } else { SLOW_ROUNDS };
        for _ in 0..slow_rounds {
            for peer in peers.iter_mut().filter(|peer| peer.stops) {
                peer.run(context, true)?;
                settle(&target)?;
            }
        }
        Ok(Self { threads, peers, pause_us })
    }

    fn runs(&self, name: &str) -> Option<&Runs> {
        self.peers.iter().find(|peer| peer.name == name).map(|peer| &peer.runs)
    }

    fn to_floor(&self, runs: &Runs) -> Option<f64> {
        runs.ratio_to(self.runs(FLOOR)?)
    }

    fn faster_than_gdb(&self, runs: &Runs) -> Option<f64> {
        Some(self.runs(GDB)?.median_ms()? / runs.median_ms()?)
    }

    fn group(&self) -> Group {
        let rows = self.peers.iter().map(|peer| {
            let ratios = [self.to_floor(&peer.runs), self.faster_than_gdb(&peer.runs)];
            Row::new(peer.name, &peer.runs, ratios, peer.missing.clone())
        });
        Group { title: format!("{} threads", self.threads), ratios: ["x floor", "gdb / it"], rows: rows.collect() }
    }

    fn budgets(&self) -> Vec<Budget> {
        let Some(tglass) = self.runs(TGLASS) else { return Vec::new() };
        match self.threads {
            10 => vec![Budget::at_most("10 threads: from start to exit", 10.0, " ms", tglass.median_ms())],
            10_000 => {
                let by_proc = self.runs(TGLASS_PROC).and_then(|runs| self.to_floor(runs));
                let rss = [TGLASS, TGLASS_PROC, TGLASS_JSON].into_iter().filter_map(|name| self.runs(name)?.rss_mib());
                vec![
                    Budget::at_most("10,000 threads: times the floor", 1.3, "x", self.to_floor(tglass)),
                    Budget::at_most("10,000 threads: times the floor, /proc only", 1.3, "x", by_proc),
                    Budget::at_least("10,000 threads: faster than gdb", 25.0, "x", self.faster_than_gdb(tglass)),
                    Budget::at_most("10,000 threads: target pause", 0.0, " us", Some(self.pause_us)),
                    Budget::at_most("10,000 threads: peak memory", 64.0, " MiB", rss.max_by(f64::total_cmp)),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// Time per thread among many compared with that among few: 1 is linear. The fixed cost of a start
/// makes it less, and the kernel's own lists and caches more, so the floor is the measure.
fn linearity(sizes: &[Size]) -> Option<Budget> {
    let size = |threads| sizes.iter().find(|size: &&Size| size.threads == threads);
    let (few, many) = (size(1_000)?, size(10_000)?);
    let growth = |name| Some(many.runs(name)?.median_ms()? / few.runs(name)?.median_ms()? / 10.0);
    // Of the two ways to look the one that does the same with few and with many.
    let compared = growth(TGLASS_PROC).zip(growth(FLOOR)).map(|(ours, floor)| ours / floor);
    Some(Budget::at_most(
        "linear, /proc only: growth of time per thread from 1,000 to 10,000, against the floor's",
        1.2,
        "x",
        compared,
    ))
}

/// Sees that tglass tells the truth about the target before it is timed; gives the pause it reports.
fn check(context: &Context, target: &Target, threads: u32) -> Result<f64> {
    let json = measure::output(&words(&[&context.tglass, &"threads", &"--json", &target.pid().to_string()]))
        .context("`tglass threads --json` does not work here (see `tglass doctor`)")?;
    let snapshot: serde_json::Value = serde_json::from_str(&json).context("tglass gave no JSON")?;
    let seen = snapshot["threads"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(seen == threads as usize, "tglass sees {seen} of {threads} threads");
    snapshot["pause_us"].as_f64().context("no pause_us in the JSON of tglass")
}

fn peers(context: &Context, target: &Target) -> Vec<Peer> {
    let pid = target.pid().to_string();
    let floor = context.programs.path("read_floor");
    let peer = |name, command, stops| Peer { name, command, env: None, stops, runs: Runs::default(), missing: None };
    vec![
        peer(FLOOR, words(&[&floor, &pid]), false),
        peer(TGLASS, words(&[&context.tglass, &"threads", &pid]), false),
        Peer { env: Some(NO_ITERATOR), ..peer(TGLASS_PROC, words(&[&context.tglass, &"threads", &pid]), false) },
        peer(TGLASS_JSON, words(&[&context.tglass, &"threads", &"--json", &pid]), false),
        peer("ps -L", words(&[&"ps", &"-L", &"-p", &pid]), false),
        peer(GDB, words(&[&"gdb", &"-batch", &"-nx", &"-p", &pid, &"-ex", &"info threads"]), true),
        peer(STACKS, words(&[&"eu-stack", &"-p", &pid]), true),
    ]
}

/// Why a peer cannot be measured here, if it cannot. Tried out on a small target: gdb, for one, ends
/// with success when it was not allowed to attach.
fn unusable(peer: &Peer) -> Option<String> {
    let mark = match peer.name {
        GDB => "LWP",
        STACKS => "TID",
        _ => "",
    };
    match measure::output(&peer.command) {
        None => Some("not installed, or does not work here".to_owned()),
        Some(text)
            if text.lines().filter(|line| line.contains(mark)).count() < TRIAL_THREADS as usize && peer.stops =>
        {
            Some("not permitted to attach".to_owned())
        }
        Some(_) => None,
    }
}

impl Peer {
    /// Runs it once, if it has not failed before.
    fn run(&mut self, context: &Context, counts: bool) -> Result<()> {
        if self.missing.is_some() {
            return Ok(());
        }
        match measure::run(&self.command, self.env, context.limit)? {
            Outcome::Done(cost) if counts => self.runs.0.push(cost),
            Outcome::Done(_) => {}
            Outcome::Failed(status) => {
                let status = status.map_or_else(|| "by a signal".to_owned(), |code| format!("with status {code}"));
                self.missing = Some(format!("failed {status}"));
            }
            Outcome::TooSlow => self.missing = Some(format!("more than {} s", context.limit.as_secs())),
        }
        Ok(())
    }
}

/// Waits until a target that was stopped sleeps again, so that the next command finds it as the
/// first one did.
fn settle(target: &Target) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    let tasks = format!("/proc/{}/task", target.pid());
    while Instant::now() < deadline {
        let mut at_rest = true;
        for task in std::fs::read_dir(&tasks).context("the target has ended")? {
            let stat = std::fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            at_rest &= state == Some('S');
        }
        if at_rest {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("the target does not come to rest")
}

fn words(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}
