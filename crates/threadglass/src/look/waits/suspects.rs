//! Holders of what does not say who holds it, by what threads at rest are about to release.

use crate::look::guards::{RestingThread, WantedLock};
use crate::look::{Look, guards};
use crate::model::{Detail, Evidence, Holder, HolderStatus, Side, SyncKind, SyncObject, SyncState, Thread};
use crate::runtimes::{self, FutexWait};
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

/// Locks without a recorded holder for which one is looked for.
const MAX_LOCKS: usize = 2048;

/// Pairs of one who waits and one who may hold what it waits for.
const MAX_PAIRS: usize = 2 << 20;

/// Adds to `objects` the threads that seem to hold them, where nothing is recorded.
pub(super) fn infer(
    look: &Look<'_>,
    threads: &[Thread],
    facts: &BTreeMap<Lwp, LwpFacts>,
    objects: &mut BTreeMap<RemoteAddr, SyncObject>,
) {
    let target = look.target;
    let mut wanted: Vec<WantedLock> = objects.values().filter_map(wanted).collect();
    if let Some(more) = wanted.len().checked_sub(MAX_LOCKS).filter(|more| *more > 0) {
        let why = format!("holders are inferred only for the first {MAX_LOCKS} locks that record none");
        target.limits().leave_out(format!("threads that may hold {more} other locks"), why);
        wanted.truncate(MAX_LOCKS);
    }
    if wanted.is_empty() {
        return;
    }
    let waits: HashMap<Lwp, RemoteAddr> =
        objects.values().flat_map(|object| object.waiters.iter().map(|waiter| (waiter.lwp, object.address))).collect();
    let at_rest = |thread: &Thread| {
        let lwp = thread.lwp?;
        let call = facts.get(&lwp)?.syscall?;
        let (sp, pc) = call.registers()?;
        Some(RestingThread {
            lwp,
            sp,
            pc,
            stack_base: thread.stack.map(|stack| stack.base),
            start: thread.start,
            waits_on: waits.get(&lwp).copied(),
            futex: FutexWait::of(&call).map(|futex| futex.word),
        })
    };
    let resting: Vec<RestingThread> = threads.iter().filter_map(at_rest).collect();
    let ids: HashMap<Lwp, _> = threads.iter().filter_map(|thread| Some((thread.lwp?, thread.id))).collect();
    let mut left = MAX_PAIRS;
    for suspect in guards::suspects(look, &wanted, &resting) {
        let Some(object) = objects.get_mut(&suspect.object) else { continue };
        match left.checked_sub(object.waiters.len().max(1)) {
            Some(rest) => left = rest,
            None => {
                let why = "too many threads wait for locks that too many others may hold";
                target.limits().leave_out("some threads that may hold a lock that records no holder", why);
                continue;
            }
        }
        object.holders.push(Holder {
            lwp: Some(suspect.lwp),
            thread: ids.get(&suspect.lwp).copied().flatten(),
            recorded: None,
            pid: None,
            side: match object.state {
                SyncState::ReadLocked => Some(Side::Read),
                SyncState::WriteLocked => Some(Side::Write),
                _ => None,
            },
            status: HolderStatus::Alive,
            evidence: Evidence::Inferred,
            why: Some(suspect.why),
        });
    }
}

/// Whether the holders of an object are worth looking for: somebody has it, and it does not say who.
fn wanted(object: &SyncObject) -> Option<WantedLock> {
    let held = match (object.kind, &object.detail) {
        (SyncKind::Mutex | SyncKind::Rwlock, _) => object.state.is_held(),
        (SyncKind::Once, _) => object.state == SyncState::InProgress,
        (SyncKind::Semaphore, Detail::Semaphore { count: 0 }) => !object.waiters.is_empty(),
        _ => false,
    };
    let unsigned = object.holders.is_empty() && !runtimes::of(object.family).hides_holder(object.family);
    (held && unsigned).then_some(WantedLock {
        address: object.address,
        size: object.size?,
        kind: object.kind,
        family: object.family,
    })
}
