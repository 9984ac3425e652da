//! `tglass threads --stacks` beside the debuggers that show all stacks of a process.

use crate::context::Context;
use crate::measure;
use crate::peers::{self, Peer, median, words};
use crate::report::{Budget, Group, Row, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::ffi::OsString;

const THREADS: u32 = 1_000;
const TGLASS: &str = "tglass threads --stacks";
const GDB: &str = "gdb thread apply all bt";
/// Peers that stop the target are slow, and disturb what follows.
const SLOW_ROUNDS: u32 = 3;

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: stacks of {THREADS} threads ..");
    let target = Target::start(context, THREADS)?;
    let pid = target.pid().to_string();
    let pause_us = check(context, &pid)?;
    let tglass = context.tglass.to_string_lossy();
    let peer = |name, line: &[&str], rounds| Peer { name, command: words(line), rounds, accept: 0 };
    let peers = [
        peer(TGLASS, &[&tglass, "threads", &pid, "--stacks"], context.rounds),
        peer("tglass threads --stacks --json", &[&tglass, "threads", &pid, "--stacks", "--json"], context.rounds),
        peer(GDB, &["gdb", "-batch", "-nx", "-p", &pid, "-ex", "thread apply all bt"], SLOW_ROUNDS),
        peer("eu-stack -p", &["eu-stack", "-p", &pid], SLOW_ROUNDS),
    ];
    let measured = peers::measure(context, &peers)?;
    let (gdb, ours) = (median(&measured, GDB), median(&measured, TGLASS));
    let rows = measured.iter().map(|one| {
        let it = one.runs.median_ms();
        let ratios = [it.zip(ours).map(|(it, ours)| it / ours), gdb.zip(it).map(|(gdb, it)| gdb / it)];
        Row::new(one.name, &one.runs, ratios, one.missing.clone())
    });
    let ratio = gdb.zip(ours).map(|(gdb, ours)| gdb / ours);
    Ok(Section {
        name: "stacks",
        title: "Stacks of all threads, all of them asleep in pthread_cond_wait".to_owned(),
        groups: vec![Group {
            title: format!("{THREADS} threads"),
            ratios: ["x tglass", "gdb / it"],
            rows: rows.collect(),
        }],
        budgets: vec![
            Budget::at_least("1,000 threads: faster than gdb", 10.0, "x", ratio),
            Budget::at_most("1,000 threads: target pause", 0.0, " us", Some(pause_us)),
        ],
        notes: vec!["gdb and eu-stack stop all threads of the target while they look.".to_owned()],
    })
}

/// Sees that every thread has its whole stack before it is timed; gives the pause that is reported.
fn check(context: &Context, pid: &str) -> Result<f64> {
    let command =
        [context.tglass.as_os_str(), "threads".as_ref(), pid.as_ref(), "--stacks".as_ref(), "--json".as_ref()];
    let json = measure::output(&command.map(OsString::from)).context("`tglass threads --stacks` does not work here")?;
    let snapshot: serde_json::Value = serde_json::from_str(&json).context("tglass gave no JSON")?;
    let threads = snapshot["threads"].as_array().context("no threads")?;
    let whole = threads.iter().filter(|thread| thread["frames_end"]["kind"] == "start").count();
    anyhow::ensure!(whole == THREADS as usize, "{whole} of {THREADS} threads have a whole stack");
    snapshot["pause_us"].as_f64().context("no pause_us in the JSON of tglass")
}
