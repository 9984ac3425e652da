//! `tglass contend`

use crate::cli::ContendArgs;
use crate::render;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use threadglass::Pid;
use threadglass::model::{SCHEMA, Snapshot};
use threadglass::target::Live;
use threadglass::track::{self, Contended, Contention, Pause, PauseEnd};
use threadglass::waits::{self, Scope};

/// Between two looks: what a program counts in its last moments is lost when it ends.
const NAP: Duration = Duration::from_millis(50);
/// Names are looked up so often, at most.
const NAMES: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    seconds: f64,
    locks: Vec<Contended>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracked: Option<super::track::Tracked>,
}

pub fn run(args: &ContendArgs) -> Result<ExitCode> {
    let mut child = args.command.first().map(|_| start(args)).transpose()?;
    let pid = child.as_ref().map_or(args.pid, |child| i32::try_from(child.id()).ok());
    let pid = Pid(pid.context("which process?")?);
    let pause = Pause::new()?;
    let tracked = match child {
        None => super::track::attach(pid, &args.inject)?,
        Some(_) => None,
    };
    let Some((mut seen, mut live)) = begin(pid, child.as_mut(), &pause)? else {
        bail!("process {pid} has no agent that counts (start it by `tglass run -- COMMAND`)");
    };
    let began = Instant::now();
    let mut names: Option<(Instant, Snapshot)> = None;
    loop {
        let left = args.duration.map(|limit| limit.saturating_sub(began.elapsed()));
        let end = if left == Some(Duration::ZERO) { Some(PauseEnd::Time) } else { None };
        let end = end.or(Some(pause.wait(left.unwrap_or(NAP).min(NAP))?).filter(|end| *end == PauseEnd::Asked));
        let ended = child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        if ended || !seen.look(&live) {
            break;
        }
        if end.is_some() || names.as_ref().is_none_or(|(when, _)| when.elapsed() > NAMES) {
            // What was loaded since is only in a new list of mappings.
            match Live::open(pid) {
                Ok(again) => live = again,
                Err(_) => break,
            }
            if let Ok(snapshot) = waits::collect_scope(&live, Scope::All) {
                names = Some((Instant::now(), snapshot));
                seen.name_functions(&live);
            }
        }
        if end.is_some() {
            break;
        }
    }
    let about = super::track::end(tracked);
    let snapshot = names.as_ref().map(|(_, snapshot)| snapshot);
    let locks = seen.worst(snapshot, args.limit);
    let report = Report { schema: SCHEMA, seconds: seen.span().as_secs_f64(), locks, tracked: about };
    match args.json {
        true => super::print_json(&report)?,
        false => {
            let note = report.tracked.as_ref().map(super::track::Tracked::text).unwrap_or_default();
            super::print(&(render::contend::text(&report.locks, report.seconds) + &note))?
        }
    };
    Ok(ExitCode::SUCCESS)
}

fn start(args: &ContendArgs) -> Result<Child> {
    if let Some(why) = track::misfit(&args.command[0]) {
        bail!(why);
    }
    let agent = track::place()?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(track::environment(&agent, false, false, None));
    command.spawn().with_context(|| format!("cannot run {}", args.command[0].display()))
}

/// Begins, as soon as a command that was just started has its agent.
fn begin(pid: Pid, mut child: Option<&mut Child>, pause: &Pause) -> Result<Option<(Contention, Live)>> {
    let patience = Instant::now();
    loop {
        let ended = child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        let live = Live::open(pid);
        let found = live.as_ref().ok().map(|live| Contention::begin(live, child.is_none()));
        match (found, live, &child) {
            (Some(Ok(Some(seen))), Ok(live), _) => return Ok(Some((seen, live))),
            (Some(Err(error)), _, None) => return Err(error.into()),
            (None, Err(error), None) => return Err(error.into()),
            (.., None) => return Ok(None),
            _ if ended || patience.elapsed() > Duration::from_secs(5) => return Ok(None),
            _ => pause.wait(Duration::from_millis(2))?,
        };
    }
}
