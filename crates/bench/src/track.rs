//! What the tracking agent costs a program, beside a shim that only forwards calls, and other tools.
//!
//! One process for each variant does slices of work on request, in turns, so that a disturbance hits all of them. Each
//! round has its own processes: where things lie in memory matters, too.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Mutexes of the uncontended cases, and threads of the contended ones.
const MUTEXES: [u32; 3] = [1, 1_000, 100_000];
const THREADS: [u32; 2] = [2, 4];
/// Slices of each variant in a round, of about 10 ms. Of contended ones there must be many: who gets a lock that many
/// want is settled anew in each, and not always in the same way.
const SLICES: u32 = 12;
const SHARED_SLICES: u32 = 90;
/// Objects by which the table's memory is measured.
const OBJECTS: u32 = 100_000;

/// How a program is run.
struct Variant {
    name: &'static str,
    /// Words before the program.
    before: Vec<String>,
    preload: Option<String>,
    program: &'static str,
    is_fast: bool,
}

const UNTRACED: &str = "untraced";
const OFF: &str = "tglass run --off";
const DEFAULT: &str = "tglass run";
const EXACT: &str = "tglass run --exact";

fn variants(context: &Context) -> Vec<Variant> {
    let tglass = context.tglass.to_string_lossy().into_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let plain =
        |name, before: Vec<String>| Variant { name, before, preload: None, program: "lock_pairs", is_fast: true };
    let mut all = vec![
        plain(UNTRACED, Vec::new()),
        Variant {
            preload: Some(context.programs.path("forward.so").to_string_lossy().into_owned()),
            ..plain("forwarding shim", Vec::new())
        },
        plain(OFF, words(&[&tglass, "run", "--off", "--"])),
        plain(DEFAULT, words(&[&tglass, "run", "--"])),
        plain(EXACT, words(&[&tglass, "run", "--exact", "--"])),
        plain("mutrace", words(&["mutrace", "--hash-size", "999983"])),
        Variant { program: "lock_pairs_tsan", ..plain("ThreadSanitizer", Vec::new()) },
        plain("valgrind --tool=drd", words(&["valgrind", "-q", "--tool=drd"])),
    ];
    for slow in &mut all[5..] {
        slow.is_fast = false;
    }
    all
}

/// A program that waits for requests.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(context: &Context, variant: &Variant, steps: u32, threads: bool) -> Option<Self> {
        let program = context.programs.path(variant.program);
        if !program.is_file() {
            return None;
        }
        let mut words = variant.before.iter().map(Into::into).chain([program.into_os_string()]);
        let mut command = Command::new(words.next()?);
        command.args(words).arg(steps.to_string()).args(threads.then_some("threads"));
        command.envs(variant.preload.as_ref().map(|path| ("LD_PRELOAD", path)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(Self { child, input, output })
    }

    fn ask(&mut self, what: &str, number: u32) -> Option<f64> {
        writeln!(self.input, "{what} {number}").ok()?;
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answers of each variant to the same question, in turns.
fn measure(context: &Context, what: &str, number: u32, steps: u32, threads: bool) -> Vec<(&'static str, Runs)> {
    let variants = variants(context);
    let mut runs: Vec<_> = variants.iter().map(|variant| (variant.name, Runs::default())).collect();
    for round in 0..context.rounds {
        // Tools of another order of magnitude: once, and not with very many objects.
        let wanted = |variant: &&Variant| variant.is_fast || round == 0 && number <= 1_000 && what == "pairs";
        let mut running: Vec<_> = variants
            .iter()
            .map(|variant| wanted(&variant).then(|| Running::start(context, variant, steps, threads)).flatten())
            .collect();
        let slices = if what == "share" { SHARED_SLICES } else { SLICES };
        for slice in 0..=slices {
            for (running, (_, runs)) in running.iter_mut().zip(&mut runs) {
                // The first slice finds cold caches, and makes the objects.
                if let Some(figure) = running.as_mut().and_then(|running| running.ask(what, number))
                    && slice > 0
                {
                    // A figure of nanoseconds or acquisitions takes the place of milliseconds.
                    runs.0.push(Cost { wall_ms: figure, cpu_ms: f64::NAN, rss_kib: 0 });
                }
            }
        }
    }
    runs
}

/// Each figure divided by the untraced one of the same turn.
fn ratio(all: &[(&'static str, Runs)], name: &str) -> Option<f64> {
    let of = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, runs)| runs);
    of(name)?.ratio_to(of(UNTRACED)?)
}

fn group(title: String, all: &[(&'static str, Runs)]) -> Group {
    let least = all[0].1.min_ms();
    let rows = all.iter().map(|(name, runs)| {
        let missing = runs.0.is_empty().then(|| "not measured, or not installed".to_owned());
        let of_least = runs.min_ms().zip(least).map(|(own, least)| own / least);
        let mut row = Row::new(name, runs, [ratio(all, name), of_least], missing);
        (row.cpu_ms, row.rss_mib) = (None, None);
        row
    });
    Group { title, ratios: ["x untraced", "x of minima"], rows: rows.collect() }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let (mut groups, mut budgets) = (Vec::new(), Vec::new());
    for (threads, about) in [(true, "a second thread asleep"), (false, "no other thread")] {
        for mutexes in MUTEXES {
            eprintln!("bench: track, {mutexes} mutexes ..");
            let all = measure(context, "pairs", mutexes, 1, threads);
            ensure!(!all[0].1.0.is_empty(), "the program does not work");
            let promised: &[(&str, f64)] = match (mutexes, threads) {
                (100_000, _) => &[(DEFAULT, 2.2)],
                (_, true) => &[(OFF, 1.25), (DEFAULT, 1.35), (EXACT, 3.6)],
                // Without another thread libc uses no atomic instructions; then two readings of the clock alone may take
                // longer than is promised for all: what they take is told below.
                (_, false) => &[(OFF, 1.25), (DEFAULT, 1.35)],
            };
            budgets.extend(promised.iter().map(|(name, most)| {
                Budget::at_most(&format!("{name}, {mutexes} mutexes, {about}"), *most, "x", ratio(&all, name))
            }));
            groups.push(group(format!("ns a pair, {mutexes} mutexes, {about}"), &all));
        }
    }
    let untraced = &variants(context)[0];
    let mut probe = Running::start(context, untraced, 1_000, false).context("the program does not start")?;
    // The fastest, so that the work takes a microsecond at least when the processor is at its best.
    let mut fastest = |what| (0..SLICES).filter_map(|_| probe.ask(what, 20_000)).min_by(f64::total_cmp);
    let step = fastest("step").context("the program does not answer")?;
    let stamps = fastest("stamps").context("the program does not answer")?;
    let steps = (1_000.0 / step) as u32;
    drop(probe);
    // What is close together in the table must not make processors fight for it.
    eprintln!("bench: track, 2 mutexes ..");
    let all = measure(context, "own", 2, 1, false);
    budgets.push(Budget::at_most(&format!("{DEFAULT}, 2 threads, a mutex each"), 1.35, "x", ratio(&all, DEFAULT)));
    groups.push(group("ns a pair, 2 threads, each with its own mutex, 64 bytes apart".to_owned(), &all));
    for threads in THREADS {
        eprintln!("bench: track, {threads} threads ..");
        let all = measure(context, "share", threads, steps, false);
        // Throughput is what all slices have done together: who gets a lock that many want changes from slice to slice,
        // and there are fast and slow ones, so that the median is now one and now the other.
        let sum = |name: &str| all.iter().find(|(known, _)| *known == name).and_then(|(_, runs)| runs.mean_ms());
        let share = sum(DEFAULT).zip(sum(UNTRACED)).map(|(own, untraced)| own / untraced);
        budgets.push(Budget::at_least(&format!("throughput, {threads} threads on one lock"), 0.95, "x", share));
        groups.push(group(format!("acquisitions a second, {threads} threads, 1 us inside"), &all));
    }
    let bytes = memory(context)?;
    budgets.push(Budget::at_most("memory, bytes an object", 128.0, "", Some(bytes)));
    Ok(Section {
        name: "track",
        title: "Lock statistics: the price of a lock and an unlock".to_owned(),
        groups,
        budgets,
        notes: vec![
            "median and min are of the figures that the titles name; the ratios are of slices of the same turn"
                .to_owned(),
            format!(
                "exact: two readings of the processor's clock, which it needs for each hold, take {stamps:.1} ns here at least"
            ),
            format!("memory: what the agent's part of the program grew by with {OBJECTS} mutexes, 64 bytes apart"),
        ],
    })
}

/// Bytes of resident memory that an object costs.
fn memory(context: &Context) -> Result<f64> {
    let variants = variants(context);
    let grown = |name: &str| -> Result<f64> {
        let variant = variants.iter().find(|variant| variant.name == name).context("no such variant")?;
        let mut running = Running::start(context, variant, 1, false).context("the program does not start")?;
        let before = running.ask("make", 1).context("no answer")?;
        Ok(running.ask("make", OBJECTS).context("no answer")? - before)
    };
    Ok((grown(DEFAULT)? - grown(UNTRACED)?) / f64::from(OBJECTS))
}
