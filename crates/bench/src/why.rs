//! `tglass why` beside the debuggers that show all stacks of a process and leave the rest to the reader.

use crate::context::Context;
use crate::peers::{self, Peer, median, words};
use crate::report::{Budget, Group, Row, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::process::{Command, Stdio};

const TGLASS: &str = "tglass why";
const GDB: &str = "gdb thread apply all bt";
/// Peers that stop the target are slow, and disturb what follows.
const SLOW_ROUNDS: u32 = 3;
/// With more threads the peers take minutes.
const PEERS_UP_TO: u32 = 1_000;
/// The status of `why` when it has found a deadlock.
const HANGS: i32 = 1;

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let (mut groups, mut budgets) = (Vec::new(), Vec::new());
    for threads in [1_000, 10_000] {
        eprintln!("bench: why, {threads} threads ..");
        let (group, budget) = all_wait(context, threads)?;
        groups.push(group);
        budgets.push(budget);
        let target = Target::start_program(context, "deadlocked", threads)?;
        let pid = target.pid().to_string();
        let pause_us = check(context, &pid, threads)?;
        let tglass = context.tglass.to_string_lossy();
        let ours = |name, line: &[&str], accept| Peer { name, command: words(line), rounds: context.rounds, accept };
        let theirs = |name, line: &[&str]| Peer { name, command: words(line), rounds: SLOW_ROUNDS, accept: 0 };
        let mut peers = vec![
            ours(TGLASS, &[&tglass, "why", &pid], HANGS),
            ours("tglass why --json", &[&tglass, "why", &pid, "--json"], HANGS),
            ours("tglass locks", &[&tglass, "locks", &pid], 0),
            ours("tglass threads", &[&tglass, "threads", &pid], 0),
        ];
        if threads <= PEERS_UP_TO {
            peers.push(theirs(GDB, &["gdb", "-batch", "-nx", "-p", &pid, "-ex", "thread apply all bt"]));
            peers.push(theirs("eu-stack -p", &["eu-stack", "-p", &pid]));
        }
        let measured = peers::measure(context, &peers)?;
        let ours = median(&measured, TGLASS);
        let gdb = median(&measured, GDB);
        let rows = measured.iter().map(|one| {
            let it = one.runs.median_ms();
            let ratios = [it.zip(ours).map(|(it, ours)| it / ours), gdb.zip(it).map(|(gdb, it)| gdb / it)];
            Row::new(one.name, &one.runs, ratios, one.missing.clone())
        });
        groups.push(Group {
            title: format!("{threads} threads"),
            ratios: ["x tglass", "gdb / it"],
            rows: rows.collect(),
        });
        budgets.push(Budget::at_most(&format!("{threads} threads: why"), limit(threads), " ms", ours));
        if threads <= PEERS_UP_TO {
            let ratio = gdb.zip(ours).map(|(gdb, ours)| gdb / ours);
            budgets.push(Budget::at_least(&format!("{threads} threads: faster than gdb"), 25.0, "x", ratio));
        }
        budgets.push(Budget::at_most(&format!("{threads} threads: target pause"), 0.0, " us", Some(pause_us)));
    }
    Ok(Section {
        name: "why",
        title: "Why a process hangs: two threads deadlock, half of the others queue behind them".to_owned(),
        groups,
        budgets,
        notes: vec![
            "gdb and eu-stack stop the target and print stacks; who waits for whom is left to the reader.".to_owned(),
        ],
    })
}

/// Milliseconds for one look at as many threads.
fn limit(threads: u32) -> f64 {
    if threads <= PEERS_UP_TO { 40.0 } else { 400.0 }
}

/// Nothing is wrong here: all threads wait to be woken, and the main thread waits for another process. Every thread and every
/// stack is looked at.
fn all_wait(context: &Context, threads: u32) -> Result<(Group, Budget)> {
    const ONE_LOOK: &str = "tglass why -d 0";
    let target = Target::start(context, threads)?;
    let (tglass, pid) = (context.tglass.to_string_lossy(), target.pid().to_string());
    let command = words(&[&tglass, "why", &pid, "-d", "0"]);
    let peers = [Peer { name: ONE_LOOK, command, rounds: context.rounds, accept: 0 }];
    let measured = peers::measure(context, &peers)?;
    let ours = median(&measured, ONE_LOOK);
    let rows = measured.iter().map(|one| Row::new(one.name, &one.runs, [ours.map(|_| 1.0), None], one.missing.clone()));
    let (title, ratios) = (format!("{threads} threads, all asleep"), ["x tglass", "gdb / it"]);
    let budget = Budget::at_most(&format!("{threads} threads, all asleep: why, one look"), limit(threads), " ms", ours);
    Ok((Group { title, ratios, rows: rows.collect() }, budget))
}

/// Sees that the deadlock is found, with all who queue behind it, before it is timed; gives the pause that is
/// reported.
fn check(context: &Context, pid: &str, threads: u32) -> Result<f64> {
    let mut command = Command::new(&context.tglass);
    let output = command.args(["why", pid, "--json"]).stdin(Stdio::null()).output()?;
    anyhow::ensure!(output.status.code() == Some(HANGS), "`tglass why` ends with {}", output.status);
    let snapshot: serde_json::Value = serde_json::from_slice(&output.stdout).context("tglass gave no JSON")?;
    let finding = &snapshot["findings"][0];
    let count = |what: &str| finding[what].as_array().map_or(0, Vec::len);
    let behind = (threads as usize - 3) / 2;
    anyhow::ensure!(
        finding["kind"] == "deadlock" && count("threads") == 2 && count("behind").abs_diff(behind) <= 1,
        "found instead of the deadlock: {finding}"
    );
    snapshot["pause_us"].as_f64().context("no pause_us in the JSON of tglass")
}
