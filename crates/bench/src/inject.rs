//! What it costs a program that runs to have the agent put into it, and its hooks removed again.

use crate::context::Context;
use crate::measure::Cost;
use crate::report::{Budget, Group, Row, Section};
use crate::stats::Runs;
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Stops of a thread, and seconds of a server with and without, for each round.
const STOPS: u32 = 10;
const SECONDS: u32 = 2;

/// The server.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(context: &Context, mode: &str) -> Result<Self> {
        let mut command = Command::new(context.programs.path("server_200"));
        let mut child = command.arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut server = Self { child, input, output };
        ensure!(server.line()? == "ready", "the server does not start");
        Ok(server)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Requests a second, over this time.
    fn rate(&mut self, act: impl FnOnce() -> Result<()>) -> Result<f64> {
        let begun = Instant::now();
        let before = self.count()?;
        act()?;
        let done = self.count()? - before;
        Ok(done / begun.elapsed().as_secs_f64())
    }

    fn count(&mut self) -> Result<f64> {
        writeln!(self.input, "count")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `tglass contend` on the server for a time; the pause that it tells, in microseconds.
fn contend(context: &Context, server: &Server, time: &str) -> Result<f64> {
    let mut command = Command::new(&context.tglass);
    command.args(["contend", &server.child.id().to_string(), "-d", time, "--json"]);
    let output = command.output().context("tglass does not run")?;
    ensure!(output.status.success(), "tglass: {}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    report["tracked"]["pause_us"].as_f64().context("tglass tells of no pause")
}

fn figure(value: f64) -> Cost {
    Cost { wall_ms: value, cpu_ms: f64::NAN, rss_kib: 0 }
}

/// Runs the benchmark.
pub fn run(context: &Context) -> Result<Section> {
    let (mut quiet, mut busy) = (Runs::default(), Runs::default());
    let (mut alone, mut tracked) = (Runs::default(), Runs::default());
    for round in 0..context.rounds {
        eprintln!("bench: inject, round {} ..", round + 1);
        let server = Server::start(context, "asleep")?;
        for _ in 0..STOPS {
            quiet.0.push(figure(contend(context, &server, "1ms")?));
        }
        drop(server);
        let mut server = Server::start(context, "busy")?;
        // The first stretch finds cold caches.
        server.rate(|| nap(Duration::from_millis(300)))?;
        for _ in 0..SECONDS {
            alone.0.push(figure(server.rate(|| nap(Duration::from_secs(1)))?));
            let mut pause = None;
            let pid = server.child.id();
            let rate = server.rate(|| {
                let mut command = Command::new(&context.tglass);
                command.args(["contend", &pid.to_string(), "-d", "1s", "--json"]);
                let output = command.output().context("tglass does not run")?;
                let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
                pause = report["tracked"]["pause_us"].as_f64();
                Ok(())
            })?;
            tracked.0.push(figure(rate));
            busy.0.extend(pause.map(figure));
        }
    }
    let bare = |command, runs: &Runs, ratio: Option<f64>| {
        let mut row = Row::new(command, runs, [ratio, None], None);
        (row.cpu_ms, row.rss_mib) = (None, None);
        row
    };
    let share = tracked.median_ms().zip(alone.median_ms()).map(|(with, without)| with / without);
    let groups = vec![
        Group {
            title: "us that one thread is stopped, 200 threads".to_owned(),
            ratios: ["", ""],
            rows: vec![bare("asleep", &quiet, None), bare("busy", &busy, None)],
        },
        Group {
            title: "requests a second of a server with 200 threads".to_owned(),
            ratios: ["x alone", ""],
            rows: vec![bare("alone", &alone, Some(1.0)), bare("tglass contend -d 1s", &tracked, share)],
        },
    ];
    let budgets = vec![
        Budget::at_most("pause of one thread, quiet program", 300.0, " us", quiet.median_ms()),
        Budget::at_least("throughput while it is tracked", 0.95, "x", share),
    ];
    Ok(Section {
        name: "inject",
        title: "Lock statistics of a program that runs: putting the agent in".to_owned(),
        groups,
        budgets,
        notes: vec![
            "median and min are of the figures that the titles name; the server's figure has the tool's own work in it"
                .to_owned(),
        ],
    })
}

fn nap(time: Duration) -> Result<()> {
    std::thread::sleep(time);
    Ok(())
}
