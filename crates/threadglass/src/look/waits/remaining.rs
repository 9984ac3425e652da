//! Who is left to end waits inside the process, where nearly all threads are in such waits: a wakeup that was lost looks
//! like this, and so does a pool without work.

use super::calls;
use super::verdict::name_of;
use super::words::count;
use crate::RemoteAddr;
use crate::model::{Snapshot, SyncKind, SyncObject, Thread, ThreadState};
use crate::runtimes::{self, Nature};
use std::collections::HashMap;

/// Threads that are named.
const NAMED: usize = 3;

/// What a thread does, for the threads that wait for others of the process.
enum Part {
    /// It waits, without a time limit, for what another thread of the process does.
    Waits,
    /// It goes on after a time, by itself.
    Sleeps,
    /// Its wait ends by somebody outside, or it is not known what it does.
    Other,
}

/// `as far as is seen, only house (4711), which sleeps for a time, could wake the others`: where all threads but some that sleep
/// for a time wait for others of the process. A handler of a signal could, too.
pub(super) fn text(snapshot: &Snapshot) -> Option<String> {
    let objects: HashMap<RemoteAddr, &SyncObject> =
        snapshot.objects.iter().map(|object| (object.address, object)).collect();
    let mut sleepers: Vec<&Thread> = Vec::new();
    let mut waits_for_wakeup = false;
    for thread in snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie) {
        match part(thread, &objects) {
            Part::Waits => waits_for_wakeup |= thread.waits_for.as_ref().is_some_and(|it| it.kind != SyncKind::Join),
            Part::Sleeps => sleepers.push(thread),
            Part::Other => return None,
        }
    }
    if sleepers.is_empty() || !waits_for_wakeup {
        return None;
    }
    let who = match sleepers.as_slice() {
        [one] => format!("{}, which sleeps", name_of(one)),
        many if many.len() <= NAMED => {
            let names: Vec<String> = many.iter().map(|thread| name_of(thread)).collect();
            format!("{}, which sleep", names.join(" and "))
        }
        many => format!("{}, which sleep", count(many.len(), "thread", "threads")),
    };
    Some(format!("as far as is seen, only {who} for a time, could wake the others"))
}

fn part(thread: &Thread, objects: &HashMap<RemoteAddr, &SyncObject>) -> Part {
    let is_at_rest = thread.state == ThreadState::Sleep && thread.polls.is_none();
    match (&thread.waits_for, &thread.syscall) {
        _ if !is_at_rest => Part::Other,
        (Some(waits), _) if waits.timed => Part::Sleeps,
        (Some(waits), _) => {
            let object = objects.get(&waits.address);
            let is_own = object.is_some_and(|object| object.shared != Some(true) && nature(object) == Nature::Plain);
            if is_own { Part::Waits } else { Part::Other }
        }
        (None, Some(call)) if calls::sleeps(call) => Part::Sleeps,
        (None, _) => Part::Other,
    }
}

fn nature(object: &SyncObject) -> Nature {
    runtimes::nature(object.kind, object.family)
}
