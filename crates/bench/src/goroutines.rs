//! Looks at very many goroutines.

use crate::context::Context;
use crate::peers::{self, Measured, Peer, words};
use crate::report::{Budget, Group, Row, Section};
use crate::target::Target;
use anyhow::{Context as _, Result};
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NUMBER: u32 = 100_000;
/// Those that others list, too: they stop the program.
const FEWER: u32 = 10_000;
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
    let notes = others(context)?;
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
        notes,
        ..empty
    })
}

/// What others take for fewer goroutines, in wall time, and how long the program stands still meanwhile.
fn others(context: &Context) -> Result<Vec<String>> {
    let target = Target::start_program(context, PROGRAM, FEWER)?;
    let pid = target.pid();
    let tglass = context.tglass.to_string_lossy();
    let debugger =
        format!("printf 'goroutines\\nexit\\nn\\n' | dlv attach {pid} --allow-non-terminal-interactive=true");
    let mut notes = Vec::new();
    for (name, line) in [
        (STACKS, words(&[&tglass, "threads", &pid.to_string(), "--stacks"])),
        ("dlv attach, goroutines", words(&["sh", "-c", &debugger])),
    ] {
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        let (output, took, stopped) = standing_still(pid, || command.output())?;
        let listed = String::from_utf8_lossy(&output?.stdout).matches("main.receives").count();
        notes.push(match listed {
            0 => format!("{name}: not installed, or does not know this Go"),
            _ => format!("{FEWER} goroutines: {name}: {}, the program stopped for {}", ms(took), ms(stopped)),
        });
    }
    let printed = context.programs.path("printed");
    let mut program = Command::new(context.programs.path(PROGRAM));
    program.arg(FEWER.to_string()).env("GOTRACEBACK", "all").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.stderr(File::create(&printed)?).spawn()?;
    let mut ready = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(program.stdout.take().context("its output")?),
        &mut ready,
    )?;
    let begun = Instant::now();
    Command::new("kill").args(["-QUIT", &program.id().to_string()]).status()?;
    program.wait()?;
    let took = ms(begun.elapsed());
    let printed = std::fs::read_to_string(&printed)?.matches("\ngoroutine ").count();
    notes.push(format!(
        "{FEWER} goroutines: SIGQUIT: {took} until the program, which it ends, has printed {printed} of them"
    ));
    Ok(notes)
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What `work` gives, how long that takes, and for how much of that process `pid` is stopped, as seen from time to time.
fn standing_still<T>(pid: u32, work: impl FnOnce() -> T) -> Result<(T, Duration, Duration)> {
    let is_over = AtomicBool::new(false);
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['t', 'T']))
    };
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut stopped, mut last) = (Duration::ZERO, Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
                let now = Instant::now();
                if is_stopped() {
                    stopped += now - last;
                }
                last = now;
            }
            stopped
        });
        let begun = Instant::now();
        let done = work();
        let took = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let stopped = watch.join().map_err(|_| anyhow::anyhow!("the watch failed"))?;
        Ok((done, took, stopped))
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
