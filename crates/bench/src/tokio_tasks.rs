//! Looks at very many tasks of tokio.

use crate::context::Context;
use crate::peers::{self, Measured, Peer, words};
use crate::report::{Budget, Group, Row, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::Command;

const NUMBER: u32 = 100_000;
const PROGRAM: &str = "many_tasks";
const SOURCE: &str = include_str!("../programs/many_tasks.rs");
const MANIFEST: &str = include_str!("../programs/many_tasks.toml");
const ONE: &str = "tglass threads, 1 task";
const LIST: &str = "tglass threads";
const STACKS: &str = "tglass threads --stacks";

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: tasks of tokio ..");
    let title = format!("{NUMBER} tasks of tokio that wait, in a program with debug information");
    let empty = Section { name: "tokio", title, groups: Vec::new(), budgets: Vec::new(), notes: Vec::new() };
    if !build(context)? {
        return Ok(Section { notes: vec!["the crate tokio cannot be had: not measured".to_owned()], ..empty });
    }
    let (target, small) =
        (Target::start_program(context, PROGRAM, NUMBER)?, Target::start_program(context, PROGRAM, 1)?);
    let tglass = context.tglass.to_string_lossy();
    let (pid, small_pid) = (target.pid().to_string(), small.pid().to_string());
    let peer = |name, line: &[&str]| Peer { name, command: words(line), rounds: context.rounds, accept: 0 };
    let peers = [
        peer(ONE, &[&tglass, "threads", &small_pid]),
        peer(LIST, &[&tglass, "threads", &pid]),
        peer(STACKS, &[&tglass, "threads", &pid, "--stacks"]),
        peer("tglass why", &[&tglass, "why", &pid]),
    ];
    let measured = peers::measure(context, &peers)?;
    let cpu = |name| measured.iter().find(|one| one.name == name).and_then(|one| one.runs.cpu_ms());
    let list = cpu(LIST);
    let row = |one: &Measured| {
        let ratio = one.runs.cpu_ms().zip(list).map(|(it, list)| it / list);
        Row::new(one.name, &one.runs, [ratio, None], one.missing.clone())
    };
    Ok(Section {
        groups: vec![Group {
            title: "one process".to_owned(),
            ratios: ["CPU x the list", ""],
            rows: measured.iter().map(row).collect(),
        }],
        budgets: vec![
            Budget::at_most("debug information and one task, CPU", 150.0, " ms", cpu(ONE)),
            Budget::at_most("the list, CPU", 300.0, " ms", list),
            Budget::at_most("with grouped chains of awaits, CPU", 300.0, " ms", cpu(STACKS)),
        ],
        ..empty
    })
}

/// Builds the program; whether its crates can be had.
fn build(context: &Context) -> Result<bool> {
    let program = context.programs.path(PROGRAM);
    // Kept: building tokio takes longer than the benchmark.
    let dir: PathBuf = std::env::current_exe()?.parent().context("a directory")?.join("bench-tokio");
    std::fs::create_dir_all(dir.join("src"))?;
    std::fs::write(dir.join("Cargo.toml"), MANIFEST)?;
    std::fs::write(dir.join("src/main.rs"), SOURCE)?;
    let cargo = |verb: &str| {
        let mut cargo = Command::new("cargo");
        cargo.arg(verb).current_dir(&dir).env("CARGO_TARGET_DIR", dir.join("target"));
        cargo
    };
    if !cargo("fetch").status().context("cannot run cargo")?.success() {
        return Ok(false);
    }
    anyhow::ensure!(cargo("build").arg("--release").status()?.success(), "{PROGRAM}.rs does not compile");
    std::fs::copy(dir.join("target/release").join(PROGRAM), program)?;
    Ok(true)
}
