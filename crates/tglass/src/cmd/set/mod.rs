//! `tglass set`

mod journal;
mod undo;

use super::{lock_name, target};
use crate::cli::{SetArgs, values};
use crate::render::set::{self as screen, Done, Report};
use anyhow::{Context, Error, Result, bail, ensure};
use journal::Journal;
use std::process::ExitCode;
use threadglass::act::set_state::{Concerned, FoundLock, SetError, apply, carry_out, find, find_sharers, kick};
use threadglass::act::{LiveWriter, set_state};
use threadglass::model::{NotKicked, SCHEMA, SetDone, SetReport};
use threadglass::target::{KernelFacts, Live};
use threadglass::{Lwp, Pid};

pub fn run(args: &SetArgs) -> Result<ExitCode> {
    if args.undo {
        return undo::run(args);
    }
    let (process, words) = args.words().map_err(Error::msg)?;
    let [lock, value] = words.as_slice() else { bail!("give the lock (its address or its name) and its new state") };
    let lock = lock.to_str().with_context(|| format!("`{}` is not the name of a lock", lock.display()))?;
    let lock = values::lock_word(lock).map_err(Error::msg)?;
    let value = value.to_str().and_then(|word| word.parse().ok());
    let value: i32 = value.with_context(|| format!("`{}` is not a state: give a whole number", words[1].display()))?;
    let pid = target::process(Some(process), "set")?;
    let live = open(pid)?;
    let address = lock_name::find(&live, &lock)?;
    let found = find(&live, address, args.kind)?;
    let plan = set_state::plan(&found.object, &found.bytes, value)?;
    let sharers = find_sharers(&live, address, found.bytes.len() as u64);
    let seen = code(&live, &found, value);
    let mut report = Report { found: &found, plan: &plan, sharers: &sharers, seen: &seen, done: None };
    if let Some(expected) = args.seen.as_ref().filter(|expected| **expected != seen) {
        bail!(
            "the lock is not as it was when --seen {expected} was printed (the code is {seen} now): its holder, waiters \
             or state have changed; nothing was written (look again without --yes)"
        );
    }
    if !args.yes {
        return tell(args, &report);
    }
    let concerned = Concerned::by(&plan, pid, &found.object.holders, &sharers.waiters);
    concerned.check_untraced()?;
    if !args.json {
        super::print(&screen::intention(&report))?;
    }
    // Whoever reads this has not seen more than a moment: what moves between two looks is not stuck.
    let again = find(&live, address, args.kind)?;
    ensure!(
        code(&live, &again, value) == seen,
        "the lock changed during the look (it is in use, not stuck); nothing was written"
    );
    let journal = Journal::of(&live, &plan, &sharers);
    let path = if plan.words.is_empty() { None } else { Some(journal.create()?) };
    let outcome = carry_out(&concerned, |refused| {
        check_all_wake(&live, refused)?;
        apply(&LiveWriter(&live), &plan)
    });
    if let Some(path) = &path {
        match &outcome {
            Ok(_) => journal.finished().rewrite(path)?,
            // Nothing has been written. After any other error something may have been: the journal stays.
            Err(SetError::Changed(_) | SetError::NotWoken(..)) => {
                std::fs::remove_file(path).context("cannot remove the journal of a change that was not made")?;
            }
            Err(_) => {}
        }
    }
    let (applied, mut kicked) = outcome?;
    // Bytes alone say nothing of a Rust lock, once nobody waits for it.
    let now = find(&live, address, Some(plan.kind)).ok().filter(|now| now.object.family == plan.family);
    // Who went to sleep between the look and the write has seen the old state only. To look once more does no harm.
    if let Some(now) = now.as_ref().filter(|_| plan.wakes) {
        let all = now.object.waiters.iter().map(|waiter| waiter.lwp);
        let late: Vec<Lwp> = all.filter(|lwp| !plan.kick.contains(lwp)).collect();
        kicked.add(kick(pid, &late));
    }
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
    let Report { found, plan, sharers, seen, done } = report;
    super::print_json(&SetReport {
        schema: SCHEMA,
        target: found.snapshot.target.clone(),
        dry_run: done.is_none(),
        object: found.object.clone(),
        plan: (*plan).clone(),
        waiters_elsewhere: sharers.waiters.clone(),
        seen: (*seen).to_owned(),
        done: done.as_ref().map(|done| SetDone {
            words: done.applied.words,
            moved_on: done.applied.moved_on,
            woken: done.kicked.kicked.clone(),
            not_woken: done.kicked.not_kicked.clone(),
            interrupted: done.kicked.interrupted.clone(),
            pause_us: screen::micros(done.kicked.total),
            longest_pause_us: screen::micros(done.kicked.longest),
            journal: done.journal.clone(),
            object: done.now.as_ref().map(|found| found.object.clone()),
        }),
    })
}

/// Refuses if a waiter of the process could not be stopped: it would sleep on, whatever is written. Waiters of other
/// processes are only named.
fn check_all_wake(live: &Live, refused: &[NotKicked]) -> Result<(), SetError> {
    match refused.iter().find(|not| not.pid == live.pid() && live.has_thread(not.lwp)) {
        Some(not) => Err(SetError::NotWoken(not.lwp, not.why.clone())),
        None => Ok(()),
    }
}

/// Opens a process to change it.
fn open(pid: Pid) -> Result<Live> {
    let live = Live::open(pid)?;
    if let Some(denial) = live.denial() {
        bail!("process {pid} may not be changed: {denial}");
    }
    Ok(live)
}

/// The code of a picture, for this process and this value.
fn code(live: &Live, found: &FoundLock, value: i32) -> String {
    format!("{:08x}", found.code(live, (live.pid(), live.leader_stat().start_time, value)))
}
