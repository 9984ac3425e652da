//! `libprofil` beside the C library's own `profil`, and `tglass profil` beside other profilers: what they cost, and how
//! true they are.

use crate::context::Context;
use crate::measure::Cost;
use crate::profilers;
use crate::report::{Group, Row, Section};
use crate::split::{Ticks, budgets as promised, note};
use crate::stats::{Runs, median};
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

const THREADS: [u32; 2] = [1, 2];
const WITHOUT: &str = "not profiled";
/// Pairs of slices in each round, one with and one without; each takes about 0.1 s.
const PAIRS: u32 = 6;

/// A profiler, and what it is asked for.
struct Profiler {
    name: &'static str,
    ours: bool,
    hz: Option<u32>,
}

const PROFILERS: [Profiler; 3] = [
    Profiler { name: "libprofil, 100 Hz", ours: true, hz: Some(100) },
    Profiler { name: "libprofil, 1 kHz", ours: true, hz: Some(1000) },
    Profiler { name: "glibc's profil, 100 Hz", ours: false, hz: None },
];

/// What was measured of one of them.
struct Measured {
    with: Runs,
    without: Runs,
    ticks: Ticks,
    cpu_s: f64,
}

impl Measured {
    /// CPU time of each slice beyond that of its neighbour without it, which met the same disturbances, in percent.
    fn more(&self) -> impl Iterator<Item = f64> {
        self.with.0.iter().zip(&self.without.0).map(|(with, without)| (with.cpu_ms / without.cpu_ms - 1.0) * 100.0)
    }

    fn rate(&self) -> f64 {
        self.ticks.sum() / self.cpu_s
    }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let library = context.tglass.with_file_name("libprofil.so");
    ensure!(library.is_file(), "no {} (run `cargo build --release --workspace` first)", library.display());
    let (mut groups, mut budgets, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for threads in THREADS {
        eprintln!("bench: profil, {threads} threads ..");
        let mut rows = Vec::new();
        for profiler in &PROFILERS {
            let measured = measure(context, profiler, &library.to_string_lossy(), threads)?;
            let (overhead, error, rate) = (median(measured.more()), measured.ticks.error(), measured.rate());
            if rows.is_empty() {
                rows.push(Row::new(WITHOUT, &measured.without, [None, None], None));
            }
            rows.push(Row::new(profiler.name, &measured.with, [overhead, error], None));
            let what = format!("{}, {threads} threads", profiler.name);
            if let Some(hz) = profiler.hz {
                budgets.extend(promised(&what, hz, overhead, error, Some(rate)));
            }
            notes.push(note(&what, &measured.ticks, rate, measured.more()));
        }
        let title = format!("{threads} threads, slices of a run");
        groups.push(Group { title, ratios: ["cpu more %", "off points"], rows });
        let (group, more_budgets, more_notes) = profilers::run(context, threads)?;
        groups.push(group);
        budgets.extend(more_budgets);
        notes.extend(more_notes);
    }
    Ok(Section {
        name: "profil",
        title: "Profilers: a program that spends 70, 20 and 10 % of its time in three functions".to_owned(),
        groups,
        budgets,
        notes,
    })
}

fn measure(context: &Context, profiler: &Profiler, library: &str, threads: u32) -> Result<Measured> {
    let mut command = Command::new(context.programs.path("split_work"));
    let pairs = PAIRS.saturating_mul(context.rounds);
    command.args([if profiler.ours { library } else { "-" }, &threads.to_string(), &pairs.to_string()]);
    command.env_remove("PROFIL_CLOCK").envs(profiler.hz.map(|hz| ("PROFIL_HZ", hz.to_string())));
    let output = command.output().with_context(|| format!("cannot run the program for {}", profiler.name))?;
    ensure!(output.status.success(), "{}: {}", profiler.name, String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Option<Vec<[f64; 4]>> = text
        .lines()
        .map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<_>>().try_into().ok())
        .collect();
    let lines = lines.context("odd output")?;
    let (&[seventy, twenty, ten, cpu_s], slices) = lines.split_last().context("no output")?;
    let cost = |cpu_ms, wall_ms| Cost { wall_ms, cpu_ms, rss_kib: 0 };
    Ok(Measured {
        with: Runs(slices.iter().map(|slice| cost(slice[0], slice[1])).collect()),
        without: Runs(slices.iter().map(|slice| cost(slice[2], slice[3])).collect()),
        ticks: Ticks([seventy, twenty, ten]),
        cpu_s,
    })
}
