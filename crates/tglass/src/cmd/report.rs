//! `tglass report`

use super::output::Output;
use super::target::{Opened, WhichTarget};
use crate::cli::ReportArgs;
use crate::render::report::Measured;
use crate::{remedy, render};
use anyhow::{Context, Result, ensure};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use threadglass::measure::contend::{Contender, contend};
use threadglass::measure::profile::{DEFAULT_RATE, Options, Progress, Source, record};
use threadglass::model::{ContentionReport, Gap, Profile};
use threadglass::snap::Part;
use threadglass::{Interrupt, Pid, act, look};

/// Contended locks that are told of each sort.
const LOCKS: usize = 100;

pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let which = WhichTarget::of(args.which.word())?;
    let contended = args.contend.map(|time| Ok::<_, anyhow::Error>((which.process("--contend")?, time))).transpose()?;
    let profiled = args.profile.map(|time| Ok::<_, anyhow::Error>((which.process("--profile")?, time))).transpose()?;
    let opened = which.open(&args.files)?;
    let output = Output::open(&args.output)?;
    let mut snapshot = match opened {
        Opened::Target(target) => {
            let _look = target.limits().begin();
            look::explain_whole(&*target, args.duration.unwrap_or(look::USUAL_TIME))?
        }
        Opened::Snapshot(snap) => {
            ensure!(args.duration.is_none(), "-d needs a process: a snapshot was taken when it was");
            snap.answer(Part::Report)?
        }
    };
    let took = started.elapsed();
    let mut measured = Measured::default();
    if contended.is_some() || profiled.is_some() {
        let interrupt = Interrupt::watch().context("cannot watch for signals")?;
        // What cannot be measured does not keep the rest from being shown.
        let mut missing = |what: &str, error: anyhow::Error| {
            super::print_error(&error);
            snapshot.gaps.push(Gap::whole(what, remedy::of_error(&error)));
        };
        if let Some((pid, time)) = profiled {
            match profile_of(pid, time, &interrupt) {
                Ok(profile) => measured.profile = Some(profile),
                Err(error) => missing("the profile", error),
            }
        }
        if let Some((pid, time)) = contended {
            match contention_of(pid, time, &interrupt) {
                Ok(contention) => measured.contention = Some(contention),
                Err(error) => missing("the contention of locks", error),
            }
        }
    }
    remedy::of_gaps(&mut snapshot.gaps);
    output.write(render::report::page(&snapshot, &measured, took)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn profile_of(pid: Pid, time: Duration, interrupt: &Interrupt) -> Result<Profile> {
    let options = Options { stacks: true, ..Options::new(DEFAULT_RATE, Some(time)) };
    let mut wait = |time: Duration, _: &Progress| interrupt.wait(time).is_some();
    let mut profile = record(Source::Process(pid), &options, &mut wait)?;
    remedy::of_gaps(&mut profile.gaps);
    Ok(profile)
}

fn contention_of(pid: Pid, time: Duration, interrupt: &Interrupt) -> Result<ContentionReport> {
    let whose = Contender::Process(pid, act::inject::Options::default());
    Ok(contend(whose, Some(time), LOCKS, interrupt, None)?)
}
