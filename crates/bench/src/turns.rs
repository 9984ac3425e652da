//! Profilers of a program whose threads do little but wake each other: what they cost there is not the ticks.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Group, Row};
use crate::split::figures;
use crate::stats::{Runs, median};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A profiler, and the rate it is asked for.
struct Profiler {
    name: &'static str,
    ours: bool,
    hz: u32,
}

const PROFILERS: [Profiler; 4] = [
    Profiler { name: "tglass profil PID, 100 Hz", ours: true, hz: 100 },
    Profiler { name: "tglass profil PID, 1 kHz", ours: true, hz: 1000 },
    Profiler { name: "perf record -p PID, 100 Hz", ours: false, hz: 100 },
    Profiler { name: "perf record -p PID, 1 kHz", ours: false, hz: 1000 },
];

/// Measures all of them. The times are those of 10,000 round trips.
pub fn run(context: &Context) -> Result<Group> {
    let mut program = Program::start(context)?;
    let mut all: Vec<(Runs, Vec<f64>, Option<String>)> = PROFILERS.iter().map(|_| Default::default()).collect();
    let mut without = Runs::default();
    for _ in 0..context.rounds {
        for (profiler, (runs, ratios, missing)) in PROFILERS.iter().zip(&mut all) {
            if missing.is_some() {
                continue;
            }
            let plain = program.slice()?;
            match program.profiled(context, profiler) {
                Ok(cost) => {
                    ratios.push(cost.wall_ms / plain.wall_ms);
                    runs.0.push(cost);
                    without.0.push(plain);
                }
                Err(error) => *missing = Some(format!("{error:#}")),
            }
        }
    }
    let mut rows = vec![Row::new("not profiled", &without, [None, None], None)];
    for (profiler, (runs, ratios, missing)) in PROFILERS.iter().zip(all) {
        rows.push(Row::new(profiler.name, &runs, [median(ratios.into_iter()), None], missing));
    }
    let title = "2 threads that wake each other, 10,000 times".to_owned();
    Ok(Group { title, ratios: ["x as long", ""], rows })
}

/// The program. It ends when its input does.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(context: &Context) -> Result<Self> {
        let mut child = Command::new(context.programs.path("take_turns"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start take_turns")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    fn slice(&mut self) -> Result<Cost> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let [wall_ms, cpu_ms] = figures(line.trim_end())?;
        Ok(Cost { wall_ms, cpu_ms, rss_kib: 0 })
    }

    fn profiled(&mut self, context: &Context, profiler: &Profiler) -> Result<Cost> {
        let (pid, hz) = (self.child.id().to_string(), profiler.hz.to_string());
        let mut command = match profiler.ours {
            true => Command::new(&context.tglass),
            false => Command::new("perf"),
        };
        match profiler.ours {
            true => command.args(["profil", &pid, "-F", &hz, "-d", "60s"]),
            false => command.args(["record", "-q", "-e", "cpu-clock:u", "-o", "/dev/null", "-F", &hz, "-p", &pid]),
        };
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("not installed"),
            spawned => spawned?,
        };
        // It has begun, and knows the program, after the first.
        let cost = self.slice().and_then(|_| self.slice());
        let early = running.try_wait()?;
        kill(Pid::from_raw(i32::try_from(running.id())?), Signal::SIGINT)?;
        running.wait()?;
        match early {
            Some(_) => bail!("does not work here"),
            None => cost,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
