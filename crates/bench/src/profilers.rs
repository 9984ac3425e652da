//! Profilers that watch a whole run of a program, beside each other: another process that samples it, gprof, perf and
//! gperftools.
//!
//! A profiled run is compared with the unprofiled ones just before and just after it, because the machine's speed
//! changes more from minute to minute than profilers cost. The program measures its own CPU time, from the first
//! instruction of the work to the last, so that starting and ending a profiler counts for nothing.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Budget, Group, Row};
use crate::split::{Ticks, budgets, note};
use crate::stats::{Runs, median};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Profiled runs of each in a round of the benchmark.
const RUNS: u32 = 2;
/// For `tglass` to turn its counters on, after it has opened them.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tglass,
    Gprof,
    Perf,
    Gperftools,
}

/// A profiler, and the rate it is asked for.
struct Profiler {
    name: &'static str,
    kind: Kind,
    hz: u32,
}

const PROFILERS: [Profiler; 7] = [
    Profiler { name: "tglass profil PID, 100 Hz", kind: Kind::Tglass, hz: 100 },
    Profiler { name: "tglass profil PID, 1 kHz", kind: Kind::Tglass, hz: 1000 },
    Profiler { name: "gprof (-pg), 100 Hz", kind: Kind::Gprof, hz: 100 },
    Profiler { name: "perf record, 100 Hz", kind: Kind::Perf, hz: 100 },
    Profiler { name: "perf record, 1 kHz", kind: Kind::Perf, hz: 1000 },
    Profiler { name: "gperftools, 100 Hz", kind: Kind::Gperftools, hz: 100 },
    Profiler { name: "gperftools, 1 kHz", kind: Kind::Gperftools, hz: 1000 },
];

/// One run of the program.
struct Run {
    cost: Cost,
    ticks: Ticks,
    /// CPU time of the profiler's own process, where it has one.
    own_ms: Option<f64>,
}

/// What came of one profiler.
#[derive(Default)]
struct Measured {
    runs: Runs,
    /// CPU time beyond that of the neighbours, in per cent.
    more: Vec<f64>,
    ticks: Ticks,
    own_ms: Option<f64>,
    missing: Option<String>,
}

impl Measured {
    fn cpu_ms(&self) -> f64 {
        self.runs.0.iter().map(|cost| cost.cpu_ms).sum()
    }
}

/// Measures all of them with this many threads.
pub fn run(context: &Context, threads: u32) -> Result<(Group, Vec<Budget>, Vec<String>)> {
    let bench = Bench::new(context, threads)?;
    let mut all: Vec<_> = PROFILERS.iter().map(|_| Measured::default()).collect();
    // A first run is not counted: it finds cold caches, and what is not installed.
    for (profiler, measured) in PROFILERS.iter().zip(&mut all) {
        if let Err(error) = bench.profiled(profiler) {
            ensure!(profiler.kind != Kind::Tglass, "{}: {error:#}", profiler.name);
            measured.missing = Some(format!("{error:#}"));
        }
    }
    let mut before = bench.unprofiled()?;
    let mut without = Runs(vec![before]);
    for _ in 0..context.rounds.saturating_mul(RUNS) {
        for (profiler, measured) in PROFILERS.iter().zip(&mut all).filter(|(_, measured)| measured.missing.is_none()) {
            let run = bench.profiled(profiler).with_context(|| profiler.name)?;
            let after = bench.unprofiled()?;
            let neighbours_ms = (before.cpu_ms + after.cpu_ms) / 2.0;
            measured.more.push((run.cost.cpu_ms / neighbours_ms - 1.0) * 100.0);
            measured.runs.0.push(run.cost);
            measured.ticks.add(&run.ticks);
            measured.own_ms = run.own_ms.map(|own| own + measured.own_ms.unwrap_or(0.0));
            without.0.push(after);
            before = after;
        }
    }
    let mut rows = vec![Row::new("not profiled", &without, [None, None], None)];
    let (mut promised, mut notes) = (Vec::new(), Vec::new());
    for (profiler, measured) in PROFILERS.iter().zip(all) {
        let overhead = median(measured.more.iter().copied());
        let error = measured.ticks.error();
        if measured.missing.is_none() {
            let rate = measured.ticks.sum() / measured.cpu_ms() * 1e3;
            let what = format!("{}, {threads} threads", profiler.name);
            let own = measured.own_ms.map(|own| own / measured.cpu_ms() * 100.0);
            let own = own.map_or_else(String::new, |own| format!("; its own process took {own:.1} % of that CPU time"));
            notes.push(note(&what, &measured.ticks, rate, measured.more.iter().copied()) + &own);
            if profiler.kind == Kind::Tglass {
                promised.extend(budgets(&what, profiler.hz, overhead, error, Some(rate)));
            }
        }
        rows.push(Row::new(profiler.name, &measured.runs, [overhead, error], measured.missing));
    }
    let title = format!("{threads} threads, whole runs");
    Ok((Group { title, ratios: ["cpu more %", "off points"], rows }, promised, notes))
}

/// What all runs share.
struct Bench<'a> {
    context: &'a Context,
    threads: String,
    /// The amount of work.
    unit: String,
    /// Where profiles are written.
    dir: TempDir,
}

impl<'a> Bench<'a> {
    fn new(context: &'a Context, threads: u32) -> Result<Self> {
        let output = Command::new(context.programs.path("split_run")).output()?;
        let unit = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Self { context, threads: threads.to_string(), unit, dir: tempfile::tempdir()? })
    }

    fn unprofiled(&self) -> Result<Cost> {
        let program = Command::new(self.context.programs.path("split_run"));
        Ok(Program::start(self, program)?.work()?.0)
    }

    fn profiled(&self, profiler: &Profiler) -> Result<Run> {
        match profiler.kind {
            Kind::Tglass => self.tglass(profiler.hz),
            Kind::Gprof => self.gprof(),
            Kind::Perf => self.perf(profiler.hz),
            Kind::Gperftools => self.gperftools(profiler.hz),
        }
    }

    fn tglass(&self, hz: u32) -> Result<Run> {
        let file = self.dir.path().join("tglass.json");
        let program = Program::start(self, Command::new(self.context.programs.path("split_run")))?;
        let mut tglass = Command::new(&self.context.tglass)
            .args(["profil", &program.child.id().to_string(), "-d", "60s", "--json", "-F", &hz.to_string(), "-o"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // From here on it ends by itself: the program does, at the latest when we do.
        wait_for_counters(&mut tglass)?;
        let (cost, _) = program.work()?;
        let before = children_ms()?;
        let status = tglass.wait()?;
        let own_ms = children_ms()? - before;
        ensure!(status.success(), "`tglass profil` ends with {status}");
        let profile: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file)?).context("odd JSON of tglass")?;
        let mut ticks = Ticks::default();
        for function in profile["functions"].as_array().context("no functions in the JSON of tglass")? {
            ticks.count_name(function["name"].as_str().unwrap_or(""), function["samples"].as_f64().unwrap_or(0.0));
        }
        Ok(Run { cost, ticks, own_ms: Some(own_ms) })
    }

    fn gprof(&self) -> Result<Run> {
        let path = self.context.programs.path("split_run_pg");
        // It writes gmon.out where it is.
        let (cost, _) = Program::start(self, Command::new(&path))?.work()?;
        let mut command = Command::new("gprof");
        command.args(["-b", "-p"]).arg(&path).arg(self.dir.path().join("gmon.out"));
        let text = output_of(&mut command)?;
        let mut ticks = Ticks::default();
        for line in text.lines() {
            // Per cent, seconds with those above it, its seconds, and in some lines calls; then the name.
            let words: Vec<_> = line.split_whitespace().collect();
            if let (Some(name), Some(Ok(seconds))) = (words.last(), words.get(2).map(|word| word.parse::<f64>())) {
                // gprof's file is of 100 ticks per second, and that is all it shows of them.
                ticks.count_name(name, seconds * 100.0);
            }
        }
        Ok(Run { cost, ticks, own_ms: None })
    }

    fn perf(&self, hz: u32) -> Result<Run> {
        let file = self.dir.path().join("perf.data");
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock:u", "-F", &hz.to_string(), "-o"]).arg(&file).arg("--");
        command.arg(self.context.programs.path("split_run"));
        let before = children_ms()?;
        let (cost, first) = Program::start(self, command)?.work()?;
        // Of both: it has waited for the program.
        let own_ms = children_ms()? - before - cost.cpu_ms;
        let text = output_of(Command::new("perf").args(["script", "-F", "ip", "-i"]).arg(&file))?;
        let mut ticks = Ticks::default();
        for address in text.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok()) {
            ticks.count(address, first, 1.0);
        }
        Ok(Run { cost, ticks, own_ms: Some(own_ms) })
    }

    fn gperftools(&self, hz: u32) -> Result<Run> {
        let file = self.dir.path().join("gperftools");
        let _ = std::fs::remove_file(&file);
        let mut command = Command::new(self.context.programs.path("split_run"));
        command.env("LD_PRELOAD", "libprofiler.so.0").env("CPUPROFILE", &file);
        command.env("CPUPROFILE_FREQUENCY", hz.to_string());
        let (cost, first) = Program::start(self, command)?.work()?;
        let Ok(profile) = std::fs::read(&file) else { bail!("not installed") };
        let ticks = gperftools_ticks(&profile, first).context("odd file of gperftools")?;
        Ok(Run { cost, ticks, own_ms: None })
    }
}

/// Ticks in the file that gperftools writes: words; a header of 3 more words than its second one says, then
/// records of a count, the number of frames and the frames, until one with no count.
fn gperftools_ticks(file: &[u8], first: u64) -> Option<Ticks> {
    let mut words = file.chunks_exact(8).map(|chunk| chunk.try_into().map_or(0, u64::from_ne_bytes));
    words.next()?;
    for _ in 0..words.next()? {
        words.next()?;
    }
    let mut ticks = Ticks::default();
    loop {
        let (count, frames) = (words.next()?, words.next()?);
        let at = words.next()?;
        if count == 0 {
            return Some(ticks);
        }
        ticks.count(at, first, count as f64);
        for _ in 1..frames {
            words.next()?;
        }
    }
}

/// The program, ready to work. Killed when dropped before.
struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// Address of the first of the three functions.
    first: u64,
}

impl Program {
    /// Starts it with `command`, which may put something in front of it.
    fn start(bench: &Bench, mut command: Command) -> Result<Self> {
        command.args([&bench.threads, &bench.unit]).current_dir(bench.dir.path());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("not installed"),
            spawned => spawned?,
        };
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut program = Self { child, output, first: 0 };
        let line = program.line()?;
        let address = line.strip_prefix("ready ").and_then(|address| address.parse().ok());
        program.first = address.context("does not work here")?;
        Ok(program)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Lets it work and end: what that cost, and where the first function was.
    fn work(mut self) -> Result<(Cost, u64)> {
        let mut input = self.child.stdin.take().context("no input")?;
        input.write_all(b"\n")?;
        let line = self.line()?;
        drop(input);
        self.child.wait()?;
        let (cpu, wall) = line.split_once(' ').context("the program gave no figures")?;
        Ok((Cost { cpu_ms: cpu.parse()?, wall_ms: wall.parse()?, rss_kib: 0 }, self.first))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its number is not used again before it has been waited for; after that this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a profiler has its counters.
fn wait_for_counters(profiler: &mut Child) -> Result<()> {
    let dir = Path::new("/proc").join(profiler.id().to_string()).join("fd");
    let is_counter = |entry: std::io::Result<std::fs::DirEntry>| {
        let link = entry.and_then(|entry| std::fs::read_link(entry.path()));
        link.is_ok_and(|link| link.to_string_lossy().contains("perf_event"))
    };
    let started = Instant::now();
    while !std::fs::read_dir(&dir)?.any(is_counter) {
        ensure!(profiler.try_wait()?.is_none(), "`tglass profil` has ended (may perf be used here? see tglass doctor)");
        ensure!(started.elapsed() < Duration::from_secs(20), "`tglass profil` opens no counters");
        sleep(Duration::from_millis(5));
    }
    sleep(SETTLE);
    Ok(())
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("not installed"),
        output => output?,
    };
    ensure!(output.status.success(), "does not work here");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// CPU time of all processes that we have waited for.
fn children_ms() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
    Ok(ms(usage.user_time()) + ms(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_gperftools() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let file = words(&[0, 3, 0, 1000, 0, 231, 1, 0x1010, 28, 2, 0x1090, 7, 66, 1, 0x1050, 0, 1, 0, 99]);
        assert_eq!(gperftools_ticks(&file, 0x1000).map(|ticks| ticks.0), Some([231.0, 66.0, 28.0]));
        assert!(gperftools_ticks(&file[..80], 0x1000).is_none());
    }
}
