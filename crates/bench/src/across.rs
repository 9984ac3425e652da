//! `tglass why` without a target, and of a process that waits for another one, beside the tools that list descriptors.

use crate::context::Context;
use crate::peers::{self, Measured, Peer, words};
use crate::report::{Budget, Group, Row, Section};
use anyhow::{Context as _, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Processes, threads of each, and descriptors of each: 500, 5,000 and 15,000 in all.
const CROWD: [&str; 3] = ["500", "10", "30"];
const MACHINE: &str = "tglass why";
const ONE: &str = "tglass why PID";

/// The crowd. Ended when dropped, with all its processes.
pub struct Crowd {
    parent: Child,
    /// One that waits for another.
    waiter: String,
}

impl Crowd {
    /// Starts it, and waits until it is there.
    pub fn start(context: &Context) -> Result<Self> {
        let mut command = Command::new(context.programs.path("crowd"));
        let mut parent = command.args(CROWD).stdout(Stdio::piped()).spawn().context("cannot start the crowd")?;
        let mut waiter = String::new();
        BufReader::new(parent.stdout.take().context("no output from the crowd")?).read_line(&mut waiter)?;
        let waiter = waiter.trim_end().to_owned();
        let crowd = Self { parent, waiter };
        anyhow::ensure!(!crowd.waiter.is_empty(), "the crowd could not start (limits: ulimit -u, pids.max)");
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: across processes ..");
    let crowd = Crowd::start(context)?;
    let tglass = context.tglass.to_string_lossy();
    let pid = crowd.waiter.as_str();
    let survey = survey(context)?;
    let peer = |name, line: &[&str]| Peer { name, command: words(line), rounds: context.rounds, accept: 1 };
    let peers = [
        peer(MACHINE, &[&tglass, "why"]),
        peer(ONE, &[&tglass, "why", pid, "-d", "0"]),
        peer("lsof -p PID", &["lsof", "-p", pid]),
        peer("lsof -E -p PID", &["lsof", "-E", "-p", pid]),
        peer("lsof", &["lsof", "-n", "-P"]),
        peer("ss -xp", &["ss", "-xp"]),
        peer("fuser of a file", &["fuser", &format!("/proc/{pid}/exe")]),
    ];
    let measured = peers::measure(context, &peers)?;
    let cpu = |name| measured.iter().find(|one| one.name == name).and_then(|one| one.runs.cpu_ms());
    let memory = measured.iter().find(|one| one.name == MACHINE).and_then(|one| one.runs.rss_mib());
    let ours = cpu(MACHINE);
    let row = |one: &Measured| {
        let ratio = one.runs.cpu_ms().zip(ours).map(|(it, ours)| it / ours);
        Row::new(one.name, &one.runs, [ratio, None], one.missing.clone())
    };
    Ok(Section {
        name: "across",
        title: "Across processes: 500 processes, 5,000 threads, 15,000 descriptors".to_owned(),
        groups: vec![Group {
            title: "one machine".to_owned(),
            ratios: ["CPU x tglass why", ""],
            rows: measured.iter().map(row).collect(),
        }],
        budgets: vec![
            Budget::at_most("the pass over processes and descriptors, CPU", 150.0, " ms", Some(survey)),
            Budget::at_most("memory", 64.0, " MiB", memory),
            Budget::at_most("why PID that leaves its process, CPU", 150.0, " ms", cpu(ONE)),
        ],
        notes: vec![
            "lsof, ss and fuser list who has which descriptor open; what a process waits for, and for whom, is left to the reader."
                .to_owned(),
        ],
    })
}

/// CPU time of the pass over all processes as the tool counts it, in milliseconds: the median of some runs, which must have
/// seen the crowd.
fn survey(context: &Context) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..context.rounds.max(3) {
        let output = Command::new(&context.tglass).args(["why", "--json"]).stdin(Stdio::null()).output()?;
        let machine: serde_json::Value = serde_json::from_slice(&output.stdout).context("tglass gave no JSON")?;
        let count = |what: &str| machine[what].as_u64().unwrap_or(0);
        anyhow::ensure!(
            count("processes") >= 500 && count("threads") >= 5000 && count("descriptors") >= 13_000,
            "the look has missed a part of the crowd: {} processes, {} threads, {} descriptors",
            count("processes"),
            count("threads"),
            count("descriptors")
        );
        times.push(count("survey_us") as f64 / 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
