//! Two builds of tglass side by side: whether a change has made it slower.

use crate::context::Context;
use crate::measure::{self, Outcome};
use crate::peers::words;
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use crate::target::Target;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::Path;

/// What is measured: the names of both builds, the arguments around the pid, and a status that is success too.
const COMMANDS: [([&str; 2], [&str; 2], i32); 4] = [
    (["why, before", "why"], ["why", ""], 1),
    (["threads, before", "threads"], ["threads", ""], 0),
    (["threads --stacks, before", "threads --stacks"], ["threads", "--stacks"], 0),
    (["locks --all, before", "locks --all"], ["locks", "--all"], 0),
];
/// How much slower nothing may become.
const MOST: f64 = 1.05;

/// Runs the benchmark.
pub fn run(context: &Context, before: &Path) -> Result<Section> {
    let (mut groups, mut budgets) = (Vec::new(), Vec::new());
    for threads in context.threads.iter().copied().filter(|threads| *threads >= 4) {
        eprintln!("bench: against {}, {threads} threads ..", before.display());
        let target = Target::start_program(context, "deadlocked", threads)?;
        let pid = target.pid().to_string();
        let builds = [before.to_string_lossy(), context.tglass.to_string_lossy()];
        let mut rows = Vec::new();
        for (names, [command, option], accept) in COMMANDS {
            let line = |build: &str| {
                let all = [build, command, &pid, option];
                words(&all[..if option.is_empty() { 3 } else { 4 }])
            };
            let [was, is] = side_by_side(context, [line(&builds[0]), line(&builds[1])], accept)?;
            let ratio = is.median_ms().zip(was.median_ms()).map(|(is, was)| is / was);
            let cpu = is.cpu_ms().zip(was.cpu_ms()).map(|(is, was)| is / was);
            budgets.push(Budget::at_most(&format!("{threads} threads: {command} {option}"), MOST, "x", ratio));
            rows.push(Row::new(names[0], &was, [None, None], None));
            rows.push(Row::new(names[1], &is, [ratio, cpu], None));
        }
        groups.push(Group { title: format!("{threads} threads"), ratios: ["x before", "x its CPU"], rows });
    }
    let title = format!("Against {}", before.display());
    Ok(Section { name: "against", title, groups, budgets, notes: Vec::new() })
}

/// Runs both commands in turns, each time in the other order: a disturbance hits both.
fn side_by_side(context: &Context, commands: [Vec<OsString>; 2], accept: i32) -> Result<[Runs; 2]> {
    let mut runs = [Runs::default(), Runs::default()];
    // A first run is not counted: it finds cold caches.
    for round in 0..=context.rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for build in order {
            match measure::run_accepting(&commands[build], accept, context.limit)? {
                Outcome::Done(cost) if round > 0 => runs[build].0.push(cost),
                Outcome::Done(_) => {}
                Outcome::Failed(_) | Outcome::TooSlow => bail!("{:?} does not work here", commands[build]),
            }
        }
    }
    Ok(runs)
}
