//! Measures `tglass` side by side with its peers, in one run on one machine.
//!
//! Every figure is the wall time of a whole command, from start to exit, as its user would wait for
//! it. Commands take turns, so that a disturbance hits all of them; what counts are the ratios.
//! Budgets are printed beside the figures for information: the exit status does not depend on them.
#![forbid(unsafe_code)]

mod across;
mod against;
mod c_library;
mod cli;
mod concurrency;
mod context;
mod cores;
mod goroutines;
mod inject;
mod machine;
mod measure;
mod peers;
mod profil;
mod profilers;
mod programs;
mod report;
mod split;
mod stacks;
mod stats;
mod target;
mod threads;
mod tokio_tasks;
mod track;
mod turns;
mod watching;
mod why;

use anyhow::{Context as _, Result};
use clap::Parser;
use cli::{Cli, Helper};
use context::Context;
use report::{Report, Section};
use std::process::ExitCode;

/// A benchmark: its name on the command line, and what runs it.
type Bench = (&'static str, fn(&Context) -> Result<Section>);

/// All of them, in the order they run.
const BENCHES: &[Bench] = &[
    ("threads", threads::run),
    ("why", why::run),
    ("across", across::run),
    ("stacks", stacks::run),
    ("goroutines", goroutines::run),
    ("tokio", tokio_tasks::run),
    ("c-library", c_library::run),
    ("cores", cores::run),
    ("profil", profil::run),
    ("stats", concurrency::run),
    ("track", track::run),
    ("inject", inject::run),
    ("watch", watching::run),
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.helper {
        Some(Helper::RunOne(args)) => measure::run_one(args),
        None => run(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    for name in &cli.only {
        anyhow::ensure!(
            BENCHES.iter().any(|(known, _)| known == name),
            "no benchmark `{name}` (there are: {})",
            names()
        );
    }
    let context = Context::new(cli)?;
    let mut report = Report::new(machine::describe());
    if let Some(before) = &cli.against {
        report.sections.push(against::run(&context, before)?);
    }
    for (name, bench) in BENCHES {
        if cli.against.is_some() && cli.only.is_empty() {
            break;
        }
        if cli.only.is_empty() || cli.only.iter().any(|only| only == name) {
            report.sections.push(bench(&context).with_context(|| format!("benchmark `{name}`"))?);
        }
    }
    print!("{}", report.text());
    if let Some(path) = &cli.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn names() -> String {
    BENCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
