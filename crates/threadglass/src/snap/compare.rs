//! What moved between two snapshots, and what did not.
//!
//! A thread *stands* only if the kernel has counted nothing of it from before the first answer of the earlier snapshot was taken
//! until after the last one of the later: then its stack, its locks and its wait are those of both. One that is where it was,
//! but has run, has come back.

use super::counters::Counters;
use super::objects::MappedFile;
use super::{Part, Snap, SnapError, tasks};
use crate::model::{
    DiffSide, Finding, FindingChange, FindingDiff, Gap, LockChange, LockDiff, LockUse, SCHEMA, Snapshot, SnapshotDiff,
    SyncObject, Thread, ThreadChange, ThreadDiff, ThreadPlace,
};
use crate::{Lwp, RemoteAddr};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Why two snapshots cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// One of them cannot be read.
    #[error(transparent)]
    Snap(#[from] SnapError),
    /// They are of two processes.
    #[error("{before} and {after} are of two processes ({how}): only snapshots of one process can be compared")]
    TwoProcesses {
        /// The one.
        before: String,
        /// The other.
        after: String,
        /// What differs.
        how: String,
    },
}

/// Compares two snapshots of one process. Which of them is the earlier one is taken from when they were taken.
pub fn compare(one: &Snap, other: &Snap) -> Result<SnapshotDiff, CompareError> {
    let (before, after) = match one.about().taken_at_ms <= other.about().taken_at_ms {
        true => (one, other),
        false => (other, one),
    };
    if let Some(how) = difference(before, after) {
        let (before, after) = (before.file().path, after.file().path);
        return Err(CompareError::TwoProcesses { before, after, how });
    }
    let apart_ms = after.about().taken_at_ms - before.about().taken_at_ms;
    let mut gaps = Vec::new();
    let why = [before, after].map(|snap| said(snap, Part::Why, &mut gaps));
    let stacks = [before, after].map(|snap| said(snap, Part::Stacks, &mut gaps));
    let locks = [before, after].map(|snap| said(snap, Part::Locks, &mut gaps));
    let ([counted, _], [_, counted_later]) = (before.counters()?, after.counters()?);
    let threads = threads(&stacks, [&counted, &counted_later], apart_ms);
    if threads.iter().any(|thread| thread.change == ThreadChange::Unknown) {
        let unknown = threads.iter().filter(|thread| thread.change == ThreadChange::Unknown).map(|thread| thread.lwp);
        let why = "one of the snapshots has no counters of the kernel for them";
        gaps.push(Gap { lwps: unknown.collect(), ..Gap::whole("whether threads have run", why) });
    }
    let [verdict_before, verdict_after] = [&why[0], &why[1]].map(|it| it.as_ref().and_then(|it| it.verdict.clone()));
    let side = |snap: &Snap, threads: usize, verdict| DiffSide { snapshot: snap.file(), threads, verdict };
    Ok(SnapshotDiff {
        schema: SCHEMA,
        target: after.target(),
        before: side(before, counted_or_seen(&counted, stacks[0].as_ref()), verdict_before),
        after: side(after, counted_or_seen(&counted_later, stacks[1].as_ref()), verdict_after),
        apart_ms,
        findings: findings(&why),
        threads,
        tasks: tasks::changes(stacks_span(&stacks, &locks), &stacks),
        locks: lock_changes(&locks),
        files: files(&before.about().files, &after.about().files),
        gaps,
    })
}

/// From before the stacks of the earlier one were read until after those of the later one were: the locks come next.
fn stacks_span([before, _]: &[Option<Snapshot>; 2], [_, after]: &[Option<Snapshot>; 2]) -> Option<u64> {
    after.as_ref()?.taken_at_ms.checked_sub(before.as_ref()?.taken_at_ms)
}

/// What shows that two snapshots are not of one process.
fn difference(before: &Snap, after: &Snap) -> Option<String> {
    let (one, other) = (before.about(), after.about());
    if one.target.pid != other.target.pid {
        return Some(format!("pid {} and pid {}", one.target.pid, other.target.pid));
    }
    let started = one.process.as_ref().zip(other.process.as_ref());
    started.filter(|(one, other)| one != other).map(|_| format!("pid {} was used again", one.target.pid))
}

/// The answer to one question, or a gap.
fn said(snap: &Snap, part: Part, gaps: &mut Vec<Gap>) -> Option<Snapshot> {
    match snap.answer(part) {
        Ok(answer) => Some(answer),
        Err(error) => {
            gaps.push(Gap::whole(format!("`{}` of {}", part.name(), error.path.display()), error.fault.to_string()));
            None
        }
    }
}

fn counted_or_seen(counted: &[Counters], stacks: Option<&Snapshot>) -> usize {
    stacks.map_or(counted.len(), |snapshot| snapshot.threads.iter().filter(|thread| thread.lwp.is_some()).count())
}

fn threads(stacks: &[Option<Snapshot>; 2], counted: [&[Counters]; 2], apart_ms: u64) -> Vec<ThreadDiff> {
    let seen = [&stacks[0], &stacks[1]].map(|snapshot| {
        let threads = snapshot.iter().flat_map(|snapshot| &snapshot.threads);
        threads.filter_map(|thread| Some((thread.lwp?, thread))).collect::<HashMap<Lwp, &Thread>>()
    });
    let counters = counted.map(|all| all.iter().map(|one| (one.lwp, one)).collect::<HashMap<Lwp, &Counters>>());
    let lwps: BTreeSet<Lwp> =
        seen.iter().flat_map(HashMap::keys).chain(counters.iter().flat_map(HashMap::keys)).copied().collect();
    let mut all: Vec<ThreadDiff> = lwps
        .into_iter()
        .map(|lwp| {
            let (threads, counters) =
                ([0, 1].map(|at| seen[at].get(&lwp).copied()), [0, 1].map(|at| counters[at].get(&lwp).copied()));
            thread(lwp, threads, counters, apart_ms)
        })
        .collect();
    // What stands is what is asked for; of the others, who ran most.
    all.sort_by_key(|one| (one.change, Reverse(one.stood_ms), Reverse(one.ran_us), one.lwp));
    all
}

fn thread(
    lwp: Lwp,
    [before, after]: [Option<&Thread>; 2],
    counters: [Option<&Counters>; 2],
    apart_ms: u64,
) -> ThreadDiff {
    let was = [before.is_some() || counters[0].is_some(), after.is_some() || counters[1].is_some()];
    let pair = counters[0].zip(counters[1]);
    // Another thread that has got the number in between does not have the same count of nanoseconds.
    let stands = pair.and_then(|(first, last)| first.stand_still(last));
    let change = match (was, stands) {
        ([true, true], Some(true)) => ThreadChange::Stands,
        ([true, true], Some(false)) => ThreadChange::Moved,
        ([true, true], None) => ThreadChange::Unknown,
        ([false, _], _) => ThreadChange::New,
        ([true, false], _) => ThreadChange::Ended,
    };
    let grown = |of: fn(&Counters) -> Option<u64>| pair.and_then(|(first, last)| of(last)?.checked_sub(of(first)?));
    let places = [before.map(place), after.map(place)];
    let same_place = places[0].as_ref().zip(places[1].as_ref()).is_some_and(|(one, other)| is_same(one, other));
    let [before_place, after_place] = places;
    ThreadDiff {
        lwp,
        name: after.or(before).and_then(|thread| thread.name.clone()),
        change,
        stood_ms: pair
            .filter(|_| change == ThreadChange::Stands)
            .map(|(_, last)| last.idle_ms.unwrap_or(0).max(apart_ms)),
        ran_us: grown(|it| it.run_ns).map(|ns| ns / 1000),
        turns: grown(|it| it.turns),
        same_place,
        before: before_place.filter(|_| !same_place),
        after: after_place,
    }
}

fn place(thread: &Thread) -> ThreadPlace {
    ThreadPlace {
        state: thread.state,
        waits_for: thread.waits_for.clone(),
        waits_outside: thread.waits_outside.as_ref().map(|wait| wait.text.clone()),
        call: thread.syscall.as_ref().map(|call| call.name.clone().into_owned()),
        frames: thread.frames.clone(),
    }
}

fn is_same(one: &ThreadPlace, other: &ThreadPlace) -> bool {
    let object = |place: &ThreadPlace| place.waits_for.as_ref().map(|waits| waits.address);
    let is_known = !one.frames.is_empty() || one.call.is_some();
    is_known && one.call == other.call && object(one) == object(other) && one.frames == other.frames
}

fn findings([before, after]: &[Option<Snapshot>; 2]) -> Vec<FindingDiff> {
    let of = |snapshot: &Option<Snapshot>| snapshot.as_ref().map_or(Vec::new(), |it| it.findings.clone());
    let (before, after) = (of(before), of(after));
    let is_same = |one: &Finding, other: &Finding| {
        let sets = |finding: &Finding| {
            let threads: BTreeSet<Lwp> = finding.threads.iter().copied().collect();
            let objects: BTreeSet<RemoteAddr> = finding.objects.iter().copied().collect();
            let tasks: BTreeSet<u64> = finding.tasks.iter().copied().collect();
            (finding.kind, threads, objects, tasks)
        };
        one.kind == other.kind && sets(one) == sets(other)
    };
    let told = |finding: &Finding, change| FindingDiff {
        change,
        kind: finding.kind,
        certainty: finding.certainty,
        threads: finding.threads.clone(),
        text: finding.text.clone(),
    };
    let later = after.iter().map(|finding| {
        let stays = before.iter().any(|known| is_same(known, finding));
        told(finding, if stays { FindingChange::Stays } else { FindingChange::New })
    });
    let gone = before.iter().filter(|finding| !after.iter().any(|known| is_same(known, finding)));
    let mut all: Vec<_> = later.chain(gone.map(|finding| told(finding, FindingChange::Gone))).collect();
    all.sort_by_key(|finding| finding.change);
    all
}

fn lock_changes([before, after]: &[Option<Snapshot>; 2]) -> Vec<LockDiff> {
    let used = |snapshot: &Option<Snapshot>| -> BTreeMap<(RemoteAddr, u8), SyncObject> {
        let objects = snapshot.iter().flat_map(|snapshot| snapshot.objects.iter().cloned());
        let is_used =
            |object: &SyncObject| !object.holders.is_empty() || !object.waiters.is_empty() || object.state.is_held();
        objects.filter(is_used).map(|object| ((object.address, object.kind as u8), object)).collect()
    };
    let (before, after) = (used(before), used(after));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let change = |key| {
        let (one, other): (Option<&SyncObject>, Option<&SyncObject>) = (before.get(&key), after.get(&key));
        let object = other.or(one)?;
        let uses = [one.map(lock_use), other.map(lock_use)];
        let held = [&uses[0], &uses[1]].map(|lock| lock.as_ref().filter(|lock| !lock.held_by.is_empty()));
        let change = match held {
            [Some(one), Some(other)] if one.held_by == other.held_by => LockChange::Held,
            [Some(_), Some(_)] => LockChange::HandedOver,
            [None, Some(_)] => LockChange::Taken,
            [Some(_), None] => LockChange::LetGo,
            [None, None] => LockChange::Waited,
        };
        let [before, after] = uses;
        Some(LockDiff { address: object.address, kind: object.kind, name: object.name.clone(), change, before, after })
    };
    let mut all: Vec<LockDiff> = keys.into_iter().filter_map(change).collect();
    all.sort_by_key(|lock| {
        (lock.change, Reverse(lock.after.as_ref().map_or(0, |lock| lock.waiting.len())), lock.address)
    });
    all
}

fn lock_use(object: &SyncObject) -> LockUse {
    let mut held_by: Vec<Lwp> = object.holders.iter().filter_map(|holder| holder.lwp).collect();
    held_by.sort_unstable();
    let mut waiting: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
    waiting.sort_unstable();
    LockUse { state: object.state, held_by, waiting }
}

/// Files that are not the same in both.
fn files(before: &[MappedFile], after: &[MappedFile]) -> Vec<String> {
    let key = |file: &MappedFile| (file.path.clone(), file.build_id.clone());
    let sets = [before, after].map(|files| files.iter().map(key).collect::<BTreeSet<_>>());
    let mut changed: Vec<String> = sets[0].symmetric_difference(&sets[1]).map(|(path, _)| path.clone()).collect();
    changed.dedup();
    changed
}
