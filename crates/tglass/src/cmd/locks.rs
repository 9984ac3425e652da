//! `tglass locks`

use super::lock_name;
use super::target::{Opened, WhichTarget};
use crate::cli::LocksArgs;
use crate::{remedy, render};
use anyhow::{Result, bail};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use threadglass::act::inject::Options;
use threadglass::look::Scope;
use threadglass::measure::contend::Counting;
use threadglass::model::{Snapshot, SyncObject};
use threadglass::snap::{Part, Snap};
use threadglass::{Interrupt, Pid, look};

pub fn run(args: &LocksArgs) -> Result<ExitCode> {
    let which = WhichTarget::of(args.target.which.word())?;
    let interrupt = args.track.map(|_| Interrupt::watch()).transpose()?;
    let counting = match (args.track, &interrupt) {
        (Some(time), Some(interrupt)) => Some(count(args, which.process("--track")?, time, interrupt)?),
        _ => None,
    };
    let started = Instant::now();
    let opened = which.open(&args.target.files)?;
    let (mut snapshot, about) = match &opened {
        Opened::Target(target) => {
            let _look = target.limits().begin();
            let mut snapshot = match &args.address {
                Some(word) => look::look_at(&**target, lock_name::find(&**target, word)?, args.kind)?,
                None => look::list_locks(&**target, if args.all { Scope::All } else { Scope::Held })?,
            };
            let about = counting.and_then(|counting| counting.end(&**target, &mut snapshot));
            (snapshot, about)
        }
        Opened::Snapshot(snap) => (kept(args, snap)?, None),
    };
    snapshot.objects.retain(|object| is_wanted(args, object));
    remedy::of_gaps(&mut snapshot.gaps);
    match args.target.json {
        true => super::print_json(&snapshot),
        false => {
            let note = about.as_ref().map(render::contend::injection).unwrap_or_default();
            super::print(&(render::locks::text(&snapshot, started.elapsed(), super::width(args.wide)) + &note))
        }
    }
}

/// The locks that a snapshot has.
fn kept(args: &LocksArgs, snap: &Snap) -> Result<Snapshot> {
    let Some(word) = &args.address else {
        return Ok(snap.answer(if args.all { Part::AllLocks } else { Part::Locks })?);
    };
    let mut snapshot = snap.answer(Part::AllLocks)?;
    let address = lock_name::find_in(&snapshot, word)?;
    snapshot.objects.retain(|object| object.address == address);
    if snapshot.objects.is_empty() {
        bail!("the snapshot has no lock at {address} (`tglass locks --all` lists those that it has)");
    }
    Ok(snapshot)
}

fn count(args: &LocksArgs, pid: Pid, time: Duration, interrupt: &Interrupt) -> Result<Counting> {
    let options = Options { force: args.force, single: args.force_single, ..Options::default() };
    Ok(Counting::for_time(pid, &options, time, interrupt)?)
}

fn is_wanted(args: &LocksArgs, object: &SyncObject) -> bool {
    let held = object.state.is_held() || !object.holders.is_empty() || !object.holding_tasks.is_empty();
    let waited = !object.waiters.is_empty() || !object.waiting_tasks.is_empty();
    let by_use = match (args.held, args.waited) {
        (true, false) => held,
        (false, true) => waited,
        (true, true) => held && waited,
        (false, false) => args.all || args.address.is_some() || held || waited,
    };
    by_use && args.kind.is_none_or(|kind| kind == object.kind)
}
