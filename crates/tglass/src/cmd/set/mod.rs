//! `tglass set`

mod journal;
mod undo;

use crate::cli::{SetArgs, WhichTarget};
use crate::render::set::{self as screen, Done, Report};
use anyhow::{Context, Result, bail, ensure};
use journal::Journal;
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use threadglass::control::LiveWriter;
use threadglass::control::set_state::{
    self, Applied, Found, Kicked, Plan, SetError, Sharers, apply, find, find_sharers, hold,
};
use threadglass::model::{HolderStatus, SCHEMA, SyncKind};
use threadglass::target::Live;
use threadglass::{Lwp, Pid, RemoteAddr};

pub fn run(args: &SetArgs) -> Result<ExitCode> {
    if args.undo {
        return undo::run(args);
    }
    let pid = match &args.target {
        WhichTarget::Process(pid) => Pid(*pid),
        WhichTarget::Core(path) => {
            bail!("{} is no process: only what runs can be changed, never a core file (give a pid)", path.display())
        }
    };
    let (Some(address), Some(value)) = (args.address, args.value) else { bail!("which object, and which value?") };
    let live = open(pid)?;
    let picture = Picture::take(&live, address, args.kind.map(|kind| kind.0))?;
    let plan = set_state::plan(&picture.found.object, &picture.found.bytes, value)?;
    let sharers = find_sharers(&live, address, picture.found.bytes.len() as u64);
    let seen = picture.code(&live, value);
    let mut report = Report { found: &picture.found, plan: &plan, sharers: &sharers, seen: &seen, done: None };
    if let Some(expected) = args.seen.as_ref().filter(|expected| **expected != seen) {
        bail!(
            "the picture is not the one of --seen {expected} any more (it is {seen} now): the holder, the waiters or \
             the state have changed; nothing was written (look again without --yes)"
        );
    }
    if !args.yes {
        return tell(args, &report);
    }
    if !args.json {
        super::print(&screen::intention(&report))?;
    }
    // Whoever reads this has not seen more than a moment: what moves between two looks is not stuck.
    let again = Picture::take(&live, address, args.kind.map(|kind| kind.0))?;
    ensure!(
        again.code(&live, value) == seen,
        "the object changed while it was looked at (it is in use, not stuck); nothing was written"
    );
    let journal = Journal::of(&live, &plan);
    let path = if plan.words.is_empty() { None } else { Some(journal.create()?) };
    let outcome = carry_out(&live, &picture, &plan, &sharers);
    if let Some(path) = &path {
        match &outcome {
            Ok(_) => journal.finished().rewrite(path)?,
            // Nothing has been written. After any other error something may have been: the journal stays.
            Err(SetError::Changed(_)) => {
                std::fs::remove_file(path).context("cannot remove the journal of a change that was not made")?;
            }
            Err(_) => {}
        }
    }
    let (applied, kicked) = outcome?;
    let now = Picture::take(&live, address, Some(plan.kind)).ok();
    let now = now.map(|picture| picture.found);
    report.done = Some(Done { applied, kicked, journal: path, now });
    tell(args, &report)
}

fn tell(args: &SetArgs, report: &Report<'_>) -> Result<ExitCode> {
    if !args.json {
        return super::print(&match &report.done {
            None => screen::intention(report) + &screen::dry_run(report),
            Some(done) => screen::outcome(report, done),
        });
    }
    let done = report.done.as_ref().map(|done| {
        json!({
            "words": done.applied.words,
            "moved_on": done.applied.moved_on,
            "woken": done.kicked.kicked,
            "not_woken": done.kicked.not_kicked,
            "interrupted": done.kicked.interrupted,
            "pause_us": screen::micros(done.kicked.total),
            "longest_pause_us": screen::micros(done.kicked.longest),
            "journal": done.journal,
            "object": done.now.as_ref().map(|found| &found.object),
        })
    });
    super::print_json(&json!({
        "schema": SCHEMA,
        "target": report.found.snapshot.target,
        "dry_run": done.is_none(),
        "object": report.found.object,
        "plan": report.plan,
        "waiters_elsewhere": report.sharers.waiters,
        "seen": report.seen,
        "done": done,
    }))
}

/// Opens a process to change it.
fn open(pid: Pid) -> Result<Live> {
    let live = Live::open(pid)?;
    if let Some(denial) = live.denial() {
        bail!("process {pid} may not be changed: {denial}");
    }
    Ok(live)
}

/// Holds everybody concerned, writes, and lets go: who waits looks at the object again.
fn carry_out(live: &Live, picture: &Picture, plan: &Plan, sharers: &Sharers) -> Result<(Applied, Kicked), SetError> {
    let pid = live.pid();
    let mut threads: Vec<(Pid, Lwp)> = Vec::new();
    // A holder that lives must not unlock in the middle of it.
    if !plan.words.is_empty() {
        let living = picture.found.object.holders.iter();
        let living = living.filter(|holder| matches!(holder.status, HolderStatus::Alive | HolderStatus::OtherProcess));
        threads.extend(living.filter_map(|holder| Some((holder.pid.unwrap_or(pid), holder.lwp?))));
    }
    threads.extend(plan.kick.iter().map(|lwp| (pid, *lwp)));
    if wakes(plan) {
        threads.extend(&sharers.waiters);
    }
    let mut unique = Vec::new();
    for thread in threads {
        if !unique.contains(&thread) {
            unique.push(thread);
        }
    }
    let held = hold(&unique);
    let applied = apply(&LiveWriter(live), plan);
    let mut kicked = held.release();
    // Holders were only held still.
    let is_waiter = |lwp: &Lwp| plan.kick.contains(lwp) || sharers.waiters.iter().any(|(_, waiter)| waiter == lwp);
    kicked.kicked.retain(is_waiter);
    kicked.not_kicked.retain(|not| is_waiter(&not.lwp));
    Ok((applied?, kicked))
}

/// Whether threads can go on after it. Those of other processes are not in the plan.
fn wakes(plan: &Plan) -> bool {
    !plan.kick.is_empty() || plan.value == 0 || (plan.kind == SyncKind::Semaphore && plan.value > 0)
}

/// What the user was shown.
struct Picture {
    found: Found,
}

impl Picture {
    fn take(live: &Live, address: RemoteAddr, kind: Option<SyncKind>) -> Result<Self> {
        Ok(Self { found: find(live, address, kind)? })
    }

    /// A code for what matters in it: another picture has another one.
    fn code(&self, live: &Live, value: i32) -> String {
        let Found { object, bytes, .. } = &self.found;
        let mut hash = DefaultHasher::new();
        (live.pid().0, live.leader_stat().start_time, object.address.0, object.kind, value, bytes).hash(&mut hash);
        let holders: Vec<_> = object.holders.iter().map(|holder| (holder.lwp, holder.side, holder.pid)).collect();
        let mut waiters: Vec<_> = object.waiters.iter().map(|waiter| (waiter.lwp, waiter.side)).collect();
        waiters.sort_unstable();
        (holders, waiters).hash(&mut hash);
        format!("{:08x}", hash.finish() as u32)
    }
}
