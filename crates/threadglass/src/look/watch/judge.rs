//! What the explanation of a process says of trouble.

use super::process::Process;
use crate::Lwp;
use crate::model::{
    Certainty, Finding, FindingKind, LockWaits, OutsideKind, Snapshot, StopKind, Thread, TroubleKind, VerdictKind,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Locks that are kept of one process.
const LOCKS: usize = 64;

/// Trouble as one look shows it.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    pub(super) kind: TroubleKind,
    pub(super) certainty: Certainty,
    pub(super) text: String,
    pub(super) way_out: Option<String>,
    /// The threads that do not go on; none where it concerns tasks.
    pub(super) members: BTreeSet<Lwp>,
    pub(super) findings: Vec<Finding>,
    pub(super) longest: Duration,
}

/// All that is the matter.
pub(super) fn judge(process: &Process, snapshot: &Snapshot, now: Instant, stuck: Duration) -> Vec<Judgement> {
    let mut found: Vec<Judgement> = Vec::new();
    found.extend(of_stop(snapshot));
    found.extend(of_hangs(snapshot, TroubleKind::Deadlocked, &|finding| {
        finding.kind.is_hang() && !is_orphaned(finding.kind)
    }));
    // Who waits behind a circle has nobody left to wake it, either.
    if !found.iter().any(|it| it.kind == TroubleKind::Deadlocked) {
        found.extend(of_hangs(snapshot, TroubleKind::NobodyLeft, &|finding| {
            is_orphaned(finding.kind) || finding.kind.is_unwoken() && finding.kind != FindingKind::PoolStarved
        }));
    }
    found.extend(of_hangs(snapshot, TroubleKind::WorkersStarve, &|finding| {
        finding.kind == FindingKind::PoolStarved || finding.kind == FindingKind::BlockedWorker
    }));
    // What hangs for ever explains who waits behind it.
    let hangs = found.iter().any(|it| matches!(it.kind, TroubleKind::Deadlocked | TroubleKind::NobodyLeft));
    if !hangs && found.is_empty() {
        found.extend(of_chain(process, snapshot, now, stuck));
    }
    if found.is_empty() {
        found.extend(of_service(process, snapshot, now, stuck));
    }
    found.extend(of_unkillable(process, snapshot, now, stuck));
    for judgement in &mut found {
        let waits = snapshot.threads.iter().filter(|thread| is_among(thread, &judgement.members));
        let since = waits.filter_map(|thread| thread.waits_for.as_ref()?.since_ms).max().unwrap_or(0);
        judgement.longest = process.stood(&judgement.members, now).max(Duration::from_millis(since));
    }
    found
}

fn is_among(thread: &Thread, lwps: &BTreeSet<Lwp>) -> bool {
    thread.lwp.is_some_and(|lwp| lwps.contains(&lwp))
}

fn is_orphaned(kind: FindingKind) -> bool {
    matches!(kind, FindingKind::OwnerExited | FindingKind::OwnerIsForkParent)
}

fn judgement(kind: TroubleKind, certainty: Certainty, text: String, members: BTreeSet<Lwp>) -> Judgement {
    let (way_out, findings, longest) = Default::default();
    Judgement { kind, certainty, text, way_out, members, findings, longest }
}

fn of_stop(snapshot: &Snapshot) -> Option<Judgement> {
    let stop = snapshot.threads.iter().find_map(|thread| thread.stop.as_ref())?;
    let kind = match stop.kind {
        StopKind::JobControl | StopKind::Suspended => TroubleKind::Stopped,
        StopKind::Traced => TroubleKind::Traced,
        StopKind::Frozen => TroubleKind::Frozen,
    };
    let stopped = snapshot.threads.iter().filter(|thread| thread.stop.is_some()).filter_map(|thread| thread.lwp);
    let verdict = snapshot.verdict.as_ref();
    let of_verdict = verdict.filter(|verdict| verdict.kind == VerdictKind::Stopped).map(|verdict| verdict.text.clone());
    let mut found = judgement(kind, Certainty::Certain, of_verdict.unwrap_or_else(|| stop.text()), stopped.collect());
    found.way_out = verdict.and_then(|verdict| verdict.way_out.clone());
    Some(found)
}

/// Findings of one sort that mean that threads hang. What may end by itself is no alarm.
fn of_hangs(snapshot: &Snapshot, kind: TroubleKind, is_meant: &dyn Fn(&Finding) -> bool) -> Option<Judgement> {
    let meant = |finding: &&Finding| is_meant(finding) && finding.certainty > Certainty::Possible;
    let findings: Vec<Finding> = snapshot.findings.iter().filter(meant).cloned().collect();
    let first = findings.first()?;
    let certainty = findings.iter().map(|finding| finding.certainty).max()?;
    let members = findings.iter().flat_map(|finding| finding.threads.iter().copied()).collect();
    let more = match findings.len() - 1 {
        0 => String::new(),
        1 => "; and another one".to_owned(),
        number => format!("; and {number} others"),
    };
    let text = format!("{}{more}", first.text);
    Some(Judgement { findings, ..judgement(kind, certainty, text, members) })
}

/// Threads that have stood for long behind one that holds a lock.
fn of_chain(process: &Process, snapshot: &Snapshot, now: Instant, stuck: Duration) -> Option<Judgement> {
    let chains = snapshot.findings.iter().filter(|it| it.kind == FindingKind::LongChain);
    let mut found: Vec<(BTreeSet<Lwp>, &Finding)> = chains
        .filter_map(|finding| {
            let (_, waiters) = finding.threads.split_last()?;
            let waiting = waiters.iter().chain(&finding.behind).copied();
            let old = process.standing(waiting, now, stuck);
            (!old.is_empty() && holds_lock(snapshot, finding)).then_some((old, finding))
        })
        .collect();
    found.sort_by_key(|(old, _)| std::cmp::Reverse(old.len()));
    let (members, finding) = found.into_iter().next()?;
    let root = finding.threads.last().copied();
    let root = snapshot.threads.iter().find(|thread| thread.lwp.is_some() && thread.lwp == root);
    let is_elsewhere = root.is_some_and(waits_for_service);
    let kind = if is_elsewhere { TroubleKind::OtherService } else { TroubleKind::Behind };
    let found = judgement(kind, finding.certainty.max(Certainty::Likely), finding.text.clone(), members);
    Some(Judgement { findings: vec![finding.clone()], ..found })
}

/// Whether what a chain ends at is more than a thread that others join.
fn holds_lock(snapshot: &Snapshot, finding: &Finding) -> bool {
    let object = finding.objects.last().and_then(|at| snapshot.objects.iter().find(|object| object.address == *at));
    object.is_some_and(|object| object.kind != crate::model::SyncKind::Join)
}

/// Whether a thread waits for what another process is to do.
fn waits_for_service(thread: &Thread) -> bool {
    let is_service = |kind| {
        matches!(
            kind,
            OutsideKind::Pipe
                | OutsideKind::Socket
                | OutsideKind::FileLock
                | OutsideKind::MessageQueue
                | OutsideKind::Semaphore
        )
    };
    let wait = thread.waits_outside.as_deref();
    wait.is_some_and(|wait| is_service(wait.kind) && !wait.timed && !wait.partners.is_empty())
}

/// Whether a thread waits for what another process is to do, a connection among that.
fn is_owed(thread: &Thread) -> bool {
    let connects = thread.syscall.as_ref().is_some_and(|call| call.name == "connect");
    thread.waits_outside.as_deref().is_some_and(|wait| wait.is_owed() || connects && !wait.timed)
}

/// Threads that have waited for long for another process.
fn of_service(process: &Process, snapshot: &Snapshot, now: Instant, stuck: Duration) -> Option<Judgement> {
    let owed = |thread: &&Thread| is_owed(thread);
    let waiting = snapshot.threads.iter().filter(owed).filter_map(|thread| thread.lwp);
    let members = process.standing(waiting, now, stuck);
    let thread = snapshot.threads.iter().find(|thread| is_among(thread, &members))?;
    let wait = thread.waits_outside.as_deref()?;
    let name = thread.name.as_deref().unwrap_or("a thread");
    let text = match members.len() {
        1 => format!("{name} ({}) waits for another process: {}", thread.lwp?, wait.text),
        number => format!("{number} threads wait for other processes: {}", wait.text),
    };
    Some(judgement(TroubleKind::OtherService, Certainty::Likely, text, members))
}

fn of_unkillable(process: &Process, snapshot: &Snapshot, now: Instant, stuck: Duration) -> Option<Judgement> {
    let members = process.unkillable(now, stuck);
    if members.is_empty() {
        return None;
    }
    let thread = snapshot.threads.iter().find(|thread| is_among(thread, &members));
    let wait = thread.and_then(|thread| thread.waits_outside.as_deref()).map(|wait| format!(": {}", wait.text));
    let text = format!(
        "{} {} in the kernel where no signal wakes {}{}",
        members.len(),
        if members.len() == 1 { "thread stands" } else { "threads stand" },
        if members.len() == 1 { "it" } else { "them" },
        wait.unwrap_or_default()
    );
    Some(judgement(TroubleKind::Unkillable, Certainty::Certain, text, members))
}

/// The locks that threads wait for.
pub(super) fn lock_waits(snapshot: &Snapshot) -> Vec<LockWaits> {
    let age = |lwp: Lwp| {
        let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp))?;
        thread.waits_for.as_ref()?.since_ms
    };
    let waited = snapshot.objects.iter().filter(|object| !object.waiters.is_empty());
    let mut locks: Vec<LockWaits> = waited
        .map(|object| LockWaits {
            name: object.name.clone(),
            kind: object.kind,
            waiters: object.waiters.len(),
            longest_ms: object.waiters.iter().filter_map(|waiter| age(waiter.lwp)).max().unwrap_or(0),
        })
        .collect();
    locks.sort_by_key(|lock| (std::cmp::Reverse(lock.waiters), std::cmp::Reverse(lock.longest_ms)));
    locks.truncate(LOCKS);
    locks
}
