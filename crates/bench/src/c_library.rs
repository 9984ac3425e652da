//! Our C library beside glibc's: the same walk over all threads, by the same client.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use crate::target::Target;
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

/// The library, and what is set for it in the environment.
type Library = (&'static str, std::path::PathBuf, Option<(&'static str, &'static str)>);

const SYSTEM: &str = "glibc's libthread_db";
const OURS: &str = "libc_db";
const OURS_PROC: &str = "libc_db, /proc only";
/// Walks of one process: the first finds nothing prepared, and is shown by itself.
const WALKS: usize = 3;
const THREADS: u32 = 10_000;

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    eprintln!("bench: the C library, {THREADS} threads ..");
    let target = Target::start(context, THREADS)?;
    let ours = context.tglass.with_file_name("libc_db.so");
    ensure!(ours.is_file(), "no {} (run `cargo build --release --workspace` first)", ours.display());
    let libraries: [Library; 3] = [
        (SYSTEM, "libthread_db.so.1".into(), None),
        (OURS, ours.clone(), None),
        (OURS_PROC, ours, Some(("THREADGLASS_NO_BPF", "1"))),
    ];
    let mut first = libraries.each_ref().map(|_| Runs::default());
    let mut later = libraries.each_ref().map(|_| Runs::default());
    for _ in 0..context.rounds {
        for (index, library) in libraries.iter().enumerate() {
            let mut walks = walks(context, &target, library)?.into_iter();
            first[index].0.extend(walks.next());
            later[index].0.extend(walks);
        }
    }
    let group = |title: &str, runs: &[Runs; 3]| Group {
        title: format!("{THREADS} threads, {title}"),
        ratios: ["x glibc", ""],
        rows: libraries
            .iter()
            .zip(runs)
            .map(|((name, ..), one)| Row::new(name, one, [one.ratio_to(&runs[0]), None], None))
            .collect(),
    };
    Ok(Section {
        name: "c-library",
        title: "td_ta_thr_iter with td_thr_get_info for each thread".to_owned(),
        groups: vec![group("first walk", &first), group("later walks", &later)],
        budgets: vec![
            Budget::at_most("C library: first walk over 10,000 threads", 3.0, "x glibc", first[1].ratio_to(&first[0])),
            Budget::at_most("C library: later walks over 10,000 threads", 3.0, "x glibc", later[1].ratio_to(&later[0])),
        ],
        notes: vec![
            "Time of the walk alone, as the client measures it. glibc's library fills 6 of the 23 members of td_thrinfo_t,".to_owned(),
            "  ours all of them, most of which only the kernel knows.".to_owned(),
        ],
    })
}

fn walks(context: &Context, target: &Target, (name, path, env): &Library) -> Result<Vec<Cost>> {
    let mut command = Command::new(context.programs.path("walk_threads"));
    command.arg(target.pid().to_string()).arg(path).arg(WALKS.to_string()).envs(*env);
    let output = command.output().with_context(|| format!("cannot run the client for {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<f64>().ok()).context("odd output");
            let threads = number()?;
            ensure!(threads as u32 == THREADS, "{name} told of {threads} threads");
            Ok(Cost { wall_ms: number()?, cpu_ms: number()?, rss_kib: 0 })
        })
        .collect()
}
