//! `tglass threads` on a core file, beside gdb on the same file.

use crate::context::Context;
use crate::measure::{self, Outcome};
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use crate::target::Target;
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const THREADS: u32 = 1_000;
const TGLASS: &str = "tglass threads CORE";
const GDB: &str = "gdb info threads";
/// gdb is slow, and steady.
const SLOW_ROUNDS: u32 = 3;

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let mut section = Section {
        name: "cores",
        title: format!("A core file of {THREADS} threads"),
        groups: Vec::new(),
        budgets: Vec::new(),
        notes: vec!["The core is gcore's; the stacks of its threads make up most of it.".to_owned()],
    };
    let dir = tempfile::tempdir().context("cannot make a directory for the core")?;
    eprintln!("bench: a core of {THREADS} threads ..");
    let target = Target::start(context, THREADS)?;
    let prefix = dir.path().join("core");
    let written =
        Command::new("gcore").arg("-o").arg(&prefix).arg(target.pid().to_string()).stdin(Stdio::null()).output();
    let core = dir.path().join(format!("core.{}", target.pid()));
    drop(target);
    if !written.is_ok_and(|output| output.status.success()) || !core.is_file() {
        section.notes.push("Not run: gcore (of gdb) is not installed, or may not attach.".to_owned());
        return Ok(section);
    }
    check(context, &core)?;

    let program = context.programs.path("many_threads");
    let tglass = words(&[&context.tglass, &"threads", &core]);
    let gdb = words(&[&"gdb", &"-nx", &"-batch", &program, &core, &"-ex", &"info threads"]);
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    // The first run finds cold caches and is not counted.
    for round in 0..=context.rounds {
        measure_one(context, &tglass, round > 0, &mut ours)?;
        if round <= SLOW_ROUNDS {
            measure_one(context, &gdb, round > 0, &mut theirs)?;
        }
    }
    let faster = theirs.median_ms().zip(ours.median_ms()).map(|(theirs, ours)| theirs / ours);
    let size = std::fs::metadata(&core)?.len() as f64 / 1e6;
    section.groups.push(Group {
        title: format!("{THREADS} threads, {size:.0} MB"),
        ratios: ["gdb / it", ""],
        rows: vec![
            Row::new(TGLASS, &ours, [faster, None], None),
            Row::new(GDB, &theirs, [Some(1.0), None], theirs.0.is_empty().then(|| "does not work here".to_owned())),
        ],
    });
    section.budgets.push(Budget::at_most("core of 1,000 threads: from start to exit", 60.0, " ms", ours.median_ms()));
    section.budgets.push(Budget::at_least("core of 1,000 threads: faster than gdb", 8.0, "x", faster));
    Ok(section)
}

fn measure_one(context: &Context, command: &[OsString], counts: bool, runs: &mut Runs) -> Result<()> {
    if let Outcome::Done(cost) = measure::run(command, None, context.limit)?
        && counts
    {
        runs.0.push(cost);
    }
    Ok(())
}

/// Sees that all threads are told before the telling is timed.
fn check(context: &Context, core: &Path) -> Result<()> {
    let json = measure::output(&words(&[&context.tglass, &"threads", &"--json", &core]))
        .context("`tglass threads --json CORE` does not work here")?;
    let snapshot: serde_json::Value = serde_json::from_str(&json).context("tglass gave no JSON")?;
    let threads = snapshot["threads"].as_array().map_or(&[][..], Vec::as_slice);
    let known = threads.iter().filter(|thread| !thread["id"].is_null() && thread["state"] == "sleep").count();
    ensure!(known == THREADS as usize, "tglass sees {known} of {THREADS} threads in the core");
    Ok(())
}

fn words(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}
