//! `tglass threads --stacks` beside the debuggers that show all stacks of a process.

use crate::context::Context;
use crate::measure::{self, Outcome};
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
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
    let tglass = context.tglass.as_os_str().to_owned();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let ours = |more: &[&str]| [vec![tglass.clone()], words(&["threads", &pid, "--stacks"]), words(more)].concat();
    let peers = [
        (TGLASS, ours(&[]), context.rounds),
        ("tglass threads --stacks --json", ours(&["--json"]), context.rounds),
        (GDB, words(&["gdb", "-batch", "-nx", "-p", &pid, "-ex", "thread apply all bt"]), SLOW_ROUNDS),
        ("eu-stack -p", words(&["eu-stack", "-p", &pid]), SLOW_ROUNDS),
    ];
    let mut measured = Vec::new();
    for (name, command, rounds) in &peers {
        let (mut runs, mut missing) = (Runs::default(), None);
        // A first run is not counted: it finds cold caches.
        for round in 0..=*rounds {
            match measure::run(command, None, context.limit)? {
                Outcome::Done(cost) if round > 0 => runs.0.push(cost),
                Outcome::Done(_) => {}
                Outcome::Failed(_) => missing = Some("not installed, or does not work here".to_owned()),
                Outcome::TooSlow => missing = Some(format!("more than {} s", context.limit.as_secs())),
            }
            if missing.is_some() {
                break;
            }
        }
        measured.push((*name, runs, missing));
    }
    let median =
        |name: &str| measured.iter().find(|(other, ..)| *other == name).and_then(|(_, runs, _)| runs.median_ms());
    let faster = |runs: &Runs| Some(median(GDB)? / runs.median_ms()?);
    let to_ours = |runs: &Runs| Some(runs.median_ms()? / median(TGLASS)?);
    let rows = measured
        .iter()
        .map(|(name, runs, missing)| Row::new(name, runs, [to_ours(runs), faster(runs)], missing.clone()));
    let ratio = median(GDB).zip(median(TGLASS)).map(|(gdb, ours)| gdb / ours);
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
