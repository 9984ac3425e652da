//! `tglass demo`: programs of our own with something wrong, each explained by the command that a user would give.

use crate::cli::{DemoArgs, DemoChildArgs, Scene};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Ends the child when the demo ends, also when it fails.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of this process alone, removed with all that is in it.
struct OwnDir(PathBuf);

impl Drop for OwnDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Scene {
    const ALL: [Self; 6] =
        [Self::Deadlock, Self::Contention, Self::Starvation, Self::Philosophers, Self::Pipes, Self::Go];

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn about(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// The words of the command that explains the program `target`.
    fn command(self, target: &str) -> Vec<String> {
        let words: &[&str] = match self {
            // The agent cannot be put into a static program, such as tglass is one then.
            Self::Contention if cfg!(target_feature = "crt-static") => &["profil", target, "--wait", "-d", "1s"],
            Self::Contention => &["contend", target, "-d", "1s"],
            _ => &["why", target],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// What to try next on a program of one's own.
    fn next(self) -> &'static str {
        match self {
            Self::Deadlock => {
                "Next: `tglass why PID` for a process that hangs, `tglass threads PID` for any process,\n\
                 `tglass doctor` if permission is denied, `tglass demo --list` for more of this.\n"
            }
            Self::Contention => {
                "Next: `tglass stats PID` tells which threads wait for locks, `tglass top PID` watches them.\n"
            }
            Self::Starvation => "Next: `tglass threads PID --stacks` shows all stacks, equal ones once.\n",
            Self::Philosophers => "Next: `tglass locks PID` lists the locks with holders and waiters.\n",
            Self::Pipes => "Next: `tglass why` without a PID finds the processes of a machine that hang.\n",
            Self::Go => {
                "Next: `tglass threads PID` lists the goroutines, `tglass threads PID --stacks` their stacks.\n"
            }
        }
    }
}

pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    if args.list {
        return super::print(&list());
    }
    let exe = std::env::current_exe().context("cannot find the executable of tglass")?;
    let built = if args.scene == Scene::Go { Some(build_go()?) } else { None };
    let mut program = match &built {
        Some(dir) => Command::new(dir.0.join("demo-go")),
        None => program_of(&exe, &args.scene.name()),
    };
    // Nobody reads it; a root that is empty has no /dev/null.
    let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Guard(child.context("cannot start the demo program")?);
    let mut ready = String::new();
    BufReader::new(child.0.stdout.take().context("no output from the demo program")?).read_line(&mut ready)?;
    ensure!(ready == "ready\n", "the demo program has ended before it was ready");
    if args.scene != Scene::Contention {
        settle(child.0.id());
    }

    let pid = child.0.id().to_string();
    let words = args.scene.command(&pid);
    let mut look = Command::new(&exe);
    look.args(&words);
    if args.json {
        look.arg("--json");
    } else {
        let what = match args.scene {
            Scene::Contention => "is slow",
            _ => "hangs",
        };
        super::print(&format!(
            "Started a small program that {what}, pid {pid}. This is `tglass {}`:\n\n",
            words.join(" ")
        ))?;
    }
    let status = look.status().context("cannot start tglass again")?;
    // 1 is the answer that it hangs.
    ensure!(matches!(status.code(), Some(0 | 1)), "`tglass {}` has failed", words.join(" "));
    if args.json {
        return Ok(ExitCode::SUCCESS);
    }
    let prepared = match args.scene {
        Scene::Contention => "The program was not prepared for this.",
        _ => "The program was not prepared or stopped for this.",
    };
    if let Some(time) = args.stay {
        super::print(&format!("\n{prepared} It stays for {time:?}, as pid {pid}.\n"))?;
        wait(&mut child, time)?;
        return super::print("It has been ended.\n");
    }
    super::print(&format!("\n{prepared} It has been ended.\n{}", args.scene.next()))
}

/// Returns when no thread of a process has run for a moment. A busy machine gets its time, but not for ever.
fn settle(pid: u32) {
    let until = Instant::now() + Duration::from_secs(2);
    let mut before = None;
    while Instant::now() < until {
        let now = turns(pid);
        if now.is_some() && now == before {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often each thread of a process has run, if all of them are asleep.
fn turns(pid: u32) -> Option<Vec<(PathBuf, String)>> {
    let mut turns = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let task = task.ok()?.path();
        let stat = std::fs::read_to_string(task.join("stat")).ok()?;
        if !stat.rsplit(')').next()?.trim_start().starts_with('S') {
            return None;
        }
        let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        turns.push((task, schedstat));
    }
    turns.sort();
    Some(turns)
}

/// All scenes.
fn list() -> String {
    let mut out = String::new();
    for scene in Scene::ALL {
        let name = scene.name();
        let command = scene.command("PID").join(" ");
        out += &format!("tglass demo {name:<14}{}\n{:26}explained by `tglass {command}`\n", scene.about(), "");
    }
    out += "\nEach takes a few seconds and ends by itself. With --stay 5m the program stays that long, for other commands.\n";
    out
}

/// The program of tglass that is called `name`.
fn program_of(exe: &Path, name: &str) -> Command {
    let mut command = Command::new(exe);
    command.args(["_scene", name, &std::process::id().to_string()]);
    command
}

/// Builds the Go program, into a directory of its own.
fn build_go() -> Result<OwnDir> {
    let template = std::env::temp_dir().join("tglass-demo-XXXXXX");
    let dir = OwnDir(nix::unistd::mkdtemp(&template).context("cannot make a directory for the Go program")?);
    let source = dir.0.join("main.go");
    std::fs::write(&source, tglass_demo::GO).context("cannot write the Go program")?;
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(dir.0.join("demo-go")).arg(&source).current_dir(&dir.0);
    // Neither a module around it nor the network is needed.
    go.env("GO111MODULE", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
    let output = match go.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no `go` here to build the program with (install Go; `tglass demo --list` has other scenes)")
        }
        output => output.context("cannot start `go`")?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`go build` has failed: {}", said.trim().lines().last().unwrap_or_default());
    Ok(dir)
}

/// Waits for that long, or until the program has ended.
fn wait(child: &mut Guard, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    std::io::stdout().flush()?;
    while Instant::now() < until && child.0.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(50).min(time));
    }
    Ok(())
}

/// A program that is looked at.
pub fn child(args: &DemoChildArgs) -> Result<ExitCode> {
    let exe = std::env::current_exe().context("cannot find the executable of tglass")?;
    match args.name.as_str() {
        "deadlock" => tglass_demo::deadlock(args.parent)?,
        "contention" => tglass_demo::contention(args.parent)?,
        "starvation" => tglass_demo::starvation(args.parent)?,
        "philosophers" => tglass_demo::philosophers(args.parent)?,
        "pipes" => tglass_demo::pipes(args.parent, program_of(&exe, "filter"))?,
        "filter" => tglass_demo::filter(args.parent)?,
        name => bail!("there is no such program: {name}"),
    }
    Ok(ExitCode::SUCCESS)
}
