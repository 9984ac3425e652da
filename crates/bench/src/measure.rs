//! One run of one command, and its cost.
//!
//! A command is run by a helper process of ours, once per run: the kernel adds up CPU time and peak
//! memory of the children that were waited for, so a parent with one child knows that child's.

use crate::cli::RunOne;
use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What one run cost.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Cost {
    /// From just before the start to just after the exit.
    pub wall_ms: f64,
    /// User and system time of all its threads.
    pub cpu_ms: f64,
    /// Peak resident memory.
    pub rss_kib: i64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub enum Outcome {
    Done(Cost),
    Failed(Option<i32>),
    TooSlow,
}

/// Runs `command` once, with `env` added to its environment, nothing on its standard input, and its
/// output thrown away.
pub fn run(command: &[OsString], env: Option<(&str, &str)>, limit: Duration) -> Result<Outcome> {
    run_with(command, env, 0, limit)
}

/// [`run`], with a status other than 0 that is success too.
pub fn run_accepting(command: &[OsString], accept: i32, limit: Duration) -> Result<Outcome> {
    run_with(command, None, accept, limit)
}

fn run_with(command: &[OsString], env: Option<(&str, &str)>, accept: i32, limit: Duration) -> Result<Outcome> {
    let output = Command::new(std::env::current_exe()?)
        .args(["run-one", "--limit", &limit.as_secs().to_string(), "--accept", &accept.to_string(), "--"])
        .args(command)
        .envs(env)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the measuring helper")?;
    anyhow::ensure!(output.status.success(), "the measuring helper failed");
    serde_json::from_slice(&output.stdout).context("the measuring helper gave no answer")
}

/// The helper's side.
pub fn run_one(args: &RunOne) -> Result<()> {
    // If the benchmark dies, nobody wants the answer.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    let (program, rest) = args.command.split_first().context("no command")?;
    let started = Instant::now();
    let child =
        Command::new(program).args(rest).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let outcome = match child {
        Ok(child) => outcome(child, started, args)?,
        // A peer that is not installed has no figures; the others have.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Outcome::Failed(None),
        Err(error) => return Err(error).with_context(|| format!("cannot run {}", program.display())),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

fn outcome(mut child: Child, started: Instant, args: &RunOne) -> Result<Outcome> {
    let ended = wait_until(&mut child, started, Duration::from_secs(args.limit))?;
    let status = child.wait()?;
    Ok(match ended {
        None => Outcome::TooSlow,
        Some(_) if !status.success() && status.code() != Some(args.accept) => Outcome::Failed(status.code()),
        Some(wall) => {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
            Outcome::Done(Cost {
                wall_ms: wall.as_secs_f64() * 1e3,
                cpu_ms: ms(usage.user_time()) + ms(usage.system_time()),
                rss_kib: usage.max_rss(),
            })
        }
    })
}

/// Waits for `child`, without collecting it: how long it took, or `None` when it had to be killed.
fn wait_until(child: &mut Child, started: Instant, limit: Duration) -> Result<Option<Duration>> {
    let id = Id::Pid(Pid::from_raw(child.id() as i32));
    let (over, ended) = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let guard = over.lock().unwrap_or_else(|poison| poison.into_inner());
            let (_guard, wait) =
                ended.wait_timeout_while(guard, limit, |over| !*over).unwrap_or_else(|poison| poison.into_inner());
            // It has not been collected, so the number is still its own.
            let too_slow = wait.timed_out();
            if too_slow {
                let _ = child.kill();
            }
            too_slow
        });
        waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        let wall = started.elapsed();
        *over.lock().unwrap_or_else(|poison| poison.into_inner()) = true;
        ended.notify_all();
        let too_slow = watch.join().unwrap_or(false);
        Ok((!too_slow).then_some(wall))
    })
}

/// Standard output of a command that is not measured, or `None` when it cannot be run.
pub fn output(command: &[OsString]) -> Option<String> {
    let (program, rest) = command.split_first()?;
    let output = Command::new(program).args(rest).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
