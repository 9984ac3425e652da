//! The locks and channels that tasks wait for or hold, as objects of the model.

use super::reader::ReadTask;
use crate::RemoteAddr;
use crate::model::{Evidence, Family, Side, SyncKind, SyncObject, SyncState, Task, TaskRef};
use std::collections::{BTreeMap, HashMap};

/// The objects that `tasks` wait for or hold, by address. The future that each was read from tells of which library a lock is
/// that threads block on.
pub(super) fn of(tasks: &[Task], read: &[ReadTask]) -> Vec<SyncObject> {
    let held = read.iter().filter_map(|task| task.facts.as_ref()).flat_map(|facts| &facts.holds);
    let families: HashMap<RemoteAddr, Family> = held.filter_map(|held| Some((held.object, held.other?.1))).collect();
    let mut objects: BTreeMap<RemoteAddr, SyncObject> = BTreeMap::new();
    let mut add = |address: RemoteAddr, kind: SyncKind, evidence: Evidence, task: TaskRef, holds: bool| {
        let family = families.get(&address).copied().unwrap_or(Family::Tokio);
        let object = objects.entry(address).or_insert_with(|| SyncObject::bare(address, kind, family, evidence));
        object.evidence = object.evidence.min(evidence);
        if holds { &mut object.holding_tasks } else { &mut object.waiting_tasks }.push(task);
    };
    for task in tasks {
        let waits = task.wait.iter().flat_map(|wait| &wait.objects);
        // The end of a task is no object, and neither is a time.
        for waits in waits.filter(|waits| !matches!(waits.kind, SyncKind::Join | SyncKind::Futex)) {
            let (side, channel_use, evidence) = (waits.side, waits.channel_use, waits.evidence);
            let waiter = TaskRef { task: task.id, side, channel_use, evidence, why: None };
            add(waits.address, waits.kind, evidence, waiter, false);
        }
        for held in &task.holds {
            let why = match (held.evidence, held.unpolled) {
                (Evidence::Inferred, _) => {
                    Some("its future has the bytes of a guard, maybe of one that was dropped".to_owned())
                }
                (_, true) => Some("the lock was given to a future that the task does not poll".to_owned()),
                _ => None,
            };
            let evidence = held.evidence;
            let holder = TaskRef { task: task.id, side: held.side, channel_use: None, evidence, why };
            add(held.address, held.kind, evidence, holder, true);
        }
    }
    let mut objects: Vec<SyncObject> = objects.into_values().collect();
    objects.iter_mut().for_each(|object| object.state = state(object));
    objects
}

/// What those who wait and hold say of the state.
fn state(object: &SyncObject) -> SyncState {
    let mut sides = object.holding_tasks.iter().map(|holder| holder.side);
    match object.kind {
        // Whoever stands in its queue would have it otherwise.
        SyncKind::Mutex => SyncState::Locked,
        SyncKind::Rwlock if sides.clone().any(|side| side == Some(Side::Write)) => SyncState::WriteLocked,
        SyncKind::Rwlock if sides.any(|side| side == Some(Side::Read)) => SyncState::ReadLocked,
        SyncKind::Channel | SyncKind::Cond | SyncKind::Barrier => SyncState::Waiting,
        SyncKind::Once => SyncState::InProgress,
        // One that wants several may wait although there are some.
        _ => SyncState::Unknown,
    }
}
