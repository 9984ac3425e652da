//! Looks at very many goroutines.

use crate::context::Context;
use crate::peers::{self, Measured, Peer, words};
use crate::report::{Budget, Group, Row, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::process::Command;

const NUMBER: u32 = 100_000;
const PROGRAM: &str = "many_goroutines";
const SOURCE: &str = include_str!("../programs/many_goroutines.go");
const LIST: &str = "tglass threads";
const STACKS: &str = "tglass threads --stacks";

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: goroutines ..");
    let title = format!("{NUMBER} goroutines that wait");
    let empty = Section { name: "goroutines", title, groups: Vec::new(), budgets: Vec::new(), notes: Vec::new() };
    if !build(context)? {
        return Ok(Section { notes: vec!["no Go compiler (go): not measured".to_owned()], ..empty });
    }
    let target = Target::start_program(context, PROGRAM, NUMBER)?;
    let tglass = context.tglass.to_string_lossy();
    let pid = target.pid().to_string();
    let peer = |name, line: &[&str]| Peer { name, command: words(line), rounds: context.rounds, accept: 0 };
    let peers = [
        peer(LIST, &[&tglass, "threads", &pid]),
        peer(STACKS, &[&tglass, "threads", &pid, "--stacks"]),
        peer("tglass locks", &[&tglass, "locks", &pid]),
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
            Budget::at_most("the list, CPU", 80.0, " ms", list),
            Budget::at_most("with grouped stacks, CPU", 300.0, " ms", cpu(STACKS)),
        ],
        ..empty
    })
}

/// Builds the program; whether there is a compiler.
fn build(context: &Context) -> Result<bool> {
    let program = context.programs.path(PROGRAM);
    let source = program.with_extension("go");
    std::fs::write(&source, SOURCE)?;
    let mut go = Command::new("go");
    go.env("GO111MODULE", "off").args(["build", "-o"]).arg(&program).arg(&source);
    match go.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        status => {
            anyhow::ensure!(status.context("cannot run go")?.success(), "{PROGRAM}.go does not compile");
            Ok(true)
        }
    }
}
