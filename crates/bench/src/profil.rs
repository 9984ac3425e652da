//! `libprofil` beside the C library's own `profil`: what it costs, and how true it is.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

const THREADS: [u32; 2] = [1, 2];
const WITHOUT: &str = "not profiled";
/// Pairs of slices in each round, one with and one without; each takes about 0.1 s.
const PAIRS: u32 = 6;
/// The truth.
const SPLIT: [f64; 3] = [70.0, 20.0, 10.0];

/// A profiler, and what it is asked for.
struct Profiler {
    name: &'static str,
    ours: bool,
    hz: Option<&'static str>,
}

const PROFILERS: [Profiler; 3] = [
    Profiler { name: "libprofil, 100 Hz", ours: true, hz: Some("100") },
    Profiler { name: "libprofil, 1 kHz", ours: true, hz: Some("1000") },
    Profiler { name: "glibc's profil, 100 Hz", ours: false, hz: None },
];

/// What was measured of one of them.
struct Measured {
    with: Runs,
    without: Runs,
    ticks: [f64; 3],
    cpu_s: f64,
}

impl Measured {
    /// CPU time beyond that of the slices without it, in percent: the median over pairs, which met the same
    /// disturbances.
    fn overhead(&self) -> Option<f64> {
        let cpu = |runs: &Runs| Runs(runs.0.iter().map(|cost| Cost { wall_ms: cost.cpu_ms, ..*cost }).collect());
        cpu(&self.with).ratio_to(&cpu(&self.without)).map(|ratio| (ratio - 1.0) * 100.0)
    }

    /// How far the worst of the three shares is from the truth, in points.
    fn error(&self) -> Option<f64> {
        let all: f64 = self.ticks.iter().sum();
        let errors = self.ticks.iter().zip(SPLIT).map(|(ticks, share)| (ticks / all * 100.0 - share).abs());
        (all > 0.0).then(|| errors.fold(0.0, f64::max))
    }

    fn rate(&self) -> f64 {
        self.ticks.iter().sum::<f64>() / self.cpu_s
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
            let (overhead, error, rate) = (measured.overhead(), measured.error(), measured.rate());
            if rows.is_empty() {
                rows.push(Row::new(WITHOUT, &measured.without, [None, None], None));
            }
            rows.push(Row::new(profiler.name, &measured.with, [overhead, error], None));
            let what = |of: &str| format!("{}, {threads} threads: {of}", profiler.name);
            match profiler.hz {
                Some("1000") => budgets.extend([
                    Budget::at_most(&what("CPU time more"), 2.0, " %", overhead),
                    Budget::at_most(&what("worst share off by"), 1.5, " points", error),
                    Budget::at_least(&what("ticks per CPU second"), 950.0, "", Some(rate)),
                ]),
                Some(_) => budgets.push(Budget::at_most(&what("CPU time more"), 0.5, " %", overhead)),
                None => {}
            }
            let shares = measured.ticks.map(|ticks| ticks / measured.ticks.iter().sum::<f64>() * 100.0);
            notes.push(format!(
                "{threads} threads, {}: {:.1} / {:.1} / {:.1} %, {rate:.0} ticks per CPU second",
                profiler.name, shares[0], shares[1], shares[2]
            ));
        }
        groups.push(Group { title: format!("{threads} threads"), ratios: ["cpu more %", "off points"], rows });
    }
    Ok(Section {
        name: "profil",
        title: "profil(): a program that spends 70, 20 and 10 % of its time in three functions".to_owned(),
        groups,
        budgets,
        notes,
    })
}

fn measure(context: &Context, profiler: &Profiler, library: &str, threads: u32) -> Result<Measured> {
    let mut command = Command::new(context.programs.path("split_work"));
    let pairs = PAIRS.saturating_mul(context.rounds);
    command.args([if profiler.ours { library } else { "-" }, &threads.to_string(), &pairs.to_string()]);
    command.env_remove("PROFIL_CLOCK").envs(profiler.hz.map(|hz| ("PROFIL_HZ", hz)));
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
        ticks: [seventy, twenty, ten],
        cpu_s,
    })
}
