//! `tglass contend`

use crate::cli::ContendArgs;
use crate::render::contend::{self, Report};
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Write};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use threadglass::control::LiveWriter;
use threadglass::model::{SCHEMA, Snapshot};
use threadglass::target::Live;
use threadglass::track::{self, Agent, Contention, Samples, Wanted};
use threadglass::waits::{self, Scope};
use threadglass::{Interrupt, Pid};

/// Between two looks: what a program counts in its last moments is lost when it ends.
const NAP: Duration = Duration::from_millis(50);
/// A terminal shows what there is so often, at most.
const SHOW: Duration = Duration::from_secs(1);
/// Looks that are not the agent's counts wait for so many times as long as the last one took: the program has a better use
/// for the CPUs.
const REST: u32 = 30;

pub fn run(args: &ContendArgs) -> Result<ExitCode> {
    let mut child = args.command.first().map(|_| start(args)).transpose()?;
    let pid = child.as_ref().map_or(args.pid, |child| i32::try_from(child.id()).ok());
    let pid = Pid(pid.context("which process?")?);
    let interrupt = Interrupt::watch()?;
    let tracked = match child {
        None => super::track::attach(pid, &args.inject)?,
        Some(_) => None,
    };
    let Some((mut seen, mut live)) = begin(pid, child.as_mut(), &interrupt)? else {
        bail!("process {pid} has no agent that counts (start it by `tglass run -- COMMAND`)");
    };
    let mut place = None;
    if tracked.is_none() {
        want(&live, &mut place)?;
    }
    let is_shown = !args.json && std::io::stdout().is_terminal();
    let mut screen = Screen::default();
    let mut samples = Samples::default();
    let began = Instant::now();
    let mut names: Option<Snapshot> = None;
    // Nobody knows when a command ends; otherwise names are wanted when something is shown.
    let is_first = is_shown || child.is_some();
    let (mut next_sample, mut next_names) = (began, began + if is_first { Duration::ZERO } else { SHOW });
    loop {
        let left = args.duration.map(|limit| limit.saturating_sub(began.elapsed()));
        let is_last = left == Some(Duration::ZERO) || interrupt.wait(left.unwrap_or(NAP).min(NAP)).is_some();
        let ended = child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        if ended || !seen.look(&live) {
            break;
        }
        if tracked.is_none() {
            let _ = want(&live, &mut place);
        }
        let now = Instant::now();
        if now >= next_sample {
            samples.look(&live);
            next_sample = now + now.elapsed() * REST;
        }
        if is_last || now >= next_names {
            // What was loaded since is only in a new list of mappings.
            match Live::open(pid) {
                Ok(again) => live = again,
                Err(_) => break,
            }
            let now = Instant::now();
            if let Ok(snapshot) = waits::collect_scope(&live, Scope::All) {
                names = Some(snapshot);
                seen.name_functions(&live);
            }
            next_names = now + (now.elapsed() * REST).max(SHOW);
            if is_shown {
                screen.show(&report(args, &seen, &samples, names.as_ref()))?;
            }
        }
        if is_last {
            break;
        }
    }
    if let Some(place) = place {
        unwant(&live, place);
    }
    screen.clear()?;
    let mut report = report(args, &seen, &samples, names.as_ref());
    report.tracked = super::track::end(tracked);
    match args.json {
        true => super::print_json(&report),
        false => super::print(&contend::text(&report)),
    }
}

fn report(args: &ContendArgs, seen: &Contention, samples: &Samples, names: Option<&Snapshot>) -> Report {
    Report {
        schema: SCHEMA,
        seconds: seen.span().as_secs_f64(),
        locks: seen.worst(names, args.limit),
        looks: samples.looks(),
        sampled: samples.worst(seen, names, args.limit),
        tracked: None,
    }
}

/// An agent that was loaded without being switched on counts while somebody wants it to.
fn want(live: &Live, place: &mut Option<Wanted>) -> Result<()> {
    if let Some(agent) = Agent::find(live)? {
        *place = agent.switch_on(&LiveWriter(live), std::process::id(), *place)?;
    }
    Ok(())
}

fn unwant(live: &Live, place: Wanted) {
    if let Ok(Some(agent)) = Agent::find(live) {
        // The program may have ended; the agent looks for us, too.
        let _ = agent.switch_off(&LiveWriter(live), std::process::id(), place);
    }
}

/// A part of a terminal that is written again and again.
#[derive(Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn show(&mut self, report: &Report) -> Result<()> {
        self.clear()?;
        let text = contend::text(report);
        let mut out = anstream::stdout().lock();
        let height = track::terminal_lines(&std::io::stdout()).unwrap_or(24);
        // A line that the terminal breaks would be two when it is to be cleared: it is told to cut them instead.
        let mut frame = "\x1b[?7l".to_owned();
        for line in text.lines().take(height.saturating_sub(1)) {
            frame += &format!("{line}\n");
            self.lines += 1;
        }
        out.write_all((frame + "\x1b[?7h").as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Takes back what was written.
    fn clear(&mut self) -> Result<()> {
        if self.lines > 0 {
            let mut out = std::io::stdout().lock();
            write!(out, "\x1b[{}A\r\x1b[J", self.lines)?;
            out.flush()?;
            self.lines = 0;
        }
        Ok(())
    }
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
fn begin(pid: Pid, mut child: Option<&mut Child>, interrupt: &Interrupt) -> Result<Option<(Contention, Live)>> {
    let patience = Instant::now();
    loop {
        let ended = child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        let live = Live::open(pid);
        if let (Ok(live), None) = (&live, &child)
            && let Some(denial) = live.denial()
        {
            bail!("the memory of process {pid} may not be read: {denial}");
        }
        let found = live.as_ref().ok().map(|live| Contention::begin(live, child.is_none()));
        match (found, live, &child) {
            (Some(Ok(Some(seen))), Ok(live), _) => return Ok(Some((seen, live))),
            (Some(Err(error)), _, None) => return Err(error.into()),
            (None, Err(error), None) => return Err(error.into()),
            (.., None) => return Ok(None),
            _ if ended || patience.elapsed() > Duration::from_secs(5) => return Ok(None),
            _ => interrupt.wait(Duration::from_millis(2)),
        };
    }
}
