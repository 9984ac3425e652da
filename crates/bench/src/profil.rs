//! `libprofil` beside the C library's own `profil`, and `tglass profil` beside other profilers: what they cost, and how
//! true they are.

use crate::context::Context;
use crate::report::{Group, Row, Section};
use crate::split::{Ticks, Took, budgets as promised, figures, note};
use crate::stats::{Runs, median};
use crate::{profilers, turns};
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

const THREADS: [u32; 2] = [1, 2];
const WITHOUT: &str = "not profiled";
/// Pairs of slices in each round, one with and one without; each takes about 0.05 s.
const PAIRS: u32 = 15;

/// What is measured.
struct Profiler {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// `libprofil`, at this rate.
    Ours(u32),
    /// The C library's.
    Glibc,
    /// No profiler: interrupts of the kernel's timer at this rate, which leave no samples. That is the machine's own
    /// price, below which nobody gets who is called by them.
    Interrupts(u32),
}

const PROFILERS: [Profiler; 4] = [
    Profiler { name: "libprofil, 100 Hz", kind: Kind::Ours(100) },
    Profiler { name: "libprofil, 1 kHz", kind: Kind::Ours(1000) },
    Profiler { name: "timer interrupts alone, 1 kHz", kind: Kind::Interrupts(1000) },
    Profiler { name: "glibc's profil, 100 Hz", kind: Kind::Glibc },
];

/// What was measured of one of them.
struct Measured {
    /// Slices of the run, with and without.
    pairs: Vec<[Took; 2]>,
    ticks: Ticks,
    cpu_s: f64,
}

impl Measured {
    /// CPU time of each slice beyond that of its neighbour without it, which met the same disturbances, in percent.
    fn more(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().map(|[with, without]| with.beyond(without))
    }

    fn runs(&self, with: bool) -> Runs {
        Runs(self.pairs.iter().map(|pair| pair[usize::from(!with)].cost).collect())
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
                rows.push(Row::new(WITHOUT, &measured.runs(false), [None, None], None));
            }
            rows.push(Row::new(profiler.name, &measured.runs(true), [overhead, error], None));
            let what = format!("{}, {threads} threads", profiler.name);
            if let Kind::Ours(hz) = profiler.kind {
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
    eprintln!("bench: profil, threads that wake each other ..");
    groups.push(turns::run(context)?);
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
    command.env_remove("PROFIL_CLOCK");
    match profiler.kind {
        Kind::Ours(hz) => command.arg(library).env("PROFIL_HZ", hz.to_string()),
        Kind::Glibc => command.arg("-"),
        Kind::Interrupts(hz) => command.arg(format!("={hz}")),
    };
    command.args([threads.to_string(), pairs.to_string()]);
    let name = profiler.name;
    let output = command.output().with_context(|| format!("cannot run the program for {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (slices, sums) = text.trim_end().rsplit_once('\n').context("no output")?;
    let pair = |line| figures(line).map(|[a, b, c, d, e, f]: [f64; 6]| [Took::new([a, b, c]), Took::new([d, e, f])]);
    let [seventy, twenty, ten, cpu_s] = figures(sums)?;
    let pairs = slices.lines().map(pair).collect::<Result<_>>()?;
    Ok(Measured { pairs, ticks: Ticks([seventy, twenty, ten]), cpu_s })
}
