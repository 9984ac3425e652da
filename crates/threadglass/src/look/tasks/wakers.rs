//! Who could end the waits of tasks, where neither the object nor the runtime tells: tasks whose code leads there. They are always
//! *inferred*.

use crate::RemoteAddr;
use crate::look::Look;
use crate::look::guards::{FollowedTask, TaskClue, TaskReason, WantedUse, follow_tasks};
use crate::model::{
    ChannelUse, Evidence, Gap, Side, SyncKind, SyncObject, SyncState, Task, TaskHolds, TaskRef, ThreadType,
};
use crate::runtimes::{TaskCode, TaskUse};
use std::collections::{BTreeSet, HashMap};

/// What is missing where not all tasks were followed.
pub(super) const UNFOLLOWED: &str = "tasks that may hold a lock, or wake others";
/// Locks whose holders are looked for at one time.
const MAX_WANTED: usize = 128;

/// Adds to `tasks` and `objects` who holds the locks that tasks wait for, and who would wake the others.
pub(super) fn add(look: &Look<'_>, code: &dyn TaskCode, tasks: &mut [Task], objects: &mut [SyncObject]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut wanted: Vec<(usize, WantedUse)> = Vec::new();
    let mut by_waiters: Vec<usize> =
        (0..objects.len()).filter(|index| !objects[*index].waiting_tasks.is_empty()).collect();
    by_waiters.sort_by_key(|index| std::cmp::Reverse(objects[*index].waiting_tasks.len()));
    if by_waiters.is_empty() {
        return gaps;
    }
    for index in by_waiters {
        let object = &objects[index];
        let Some(what) = held_as(object) else { continue };
        if wanted.len() >= MAX_WANTED {
            gaps.push(Gap::whole(
                "holders of locks",
                format!("{MAX_WANTED} locks were looked for, and there are more"),
            ));
            break;
        }
        let address = code.lock_of(object.address, object.kind);
        let is_taken_by_waiters = !matches!(object.kind, SyncKind::Once | SyncKind::WaitGroup);
        wanted.push((index, WantedUse { address, what, size: object.size.unwrap_or(8), is_taken_by_waiters }));
    }
    let places: HashMap<RemoteAddr, usize> =
        wanted.iter().enumerate().map(|(number, (index, _))| (objects[*index].address, number)).collect();
    let of_program: Vec<usize> =
        (0..tasks.len()).filter(|index| tasks[*index].kind == ThreadType::User && tasks[*index].pc.is_some()).collect();
    let stands = code.stands(&of_program.iter().map(|index| &tasks[*index]).collect::<Vec<_>>());
    let followed = stands.into_iter().zip(&of_program).map(|(stand, index)| {
        let waits = tasks[*index].wait.as_ref().and_then(|wait| wait.objects.first());
        // Who reads and wants to write does not wait for what it has.
        let is_it = |number: &usize| {
            let is_shared = wanted[*number].1.what == TaskUse::Shared;
            waits.is_some_and(|it| it.kind != SyncKind::Rwlock || (it.side == Some(Side::Read)) == is_shared)
        };
        let waits_for = waits.and_then(|object| places.get(&object.address).copied()).filter(is_it);
        Some(FollowedTask { stand: stand?, waits_for })
    });
    let uses: Vec<WantedUse> = wanted.iter().map(|(_, it)| *it).collect();
    let found = follow_tasks(look, code, &uses, &followed.collect::<Vec<_>>());
    if !found.is_whole {
        let why = "the work that one look may do was spent on other tasks";
        gaps.push(Gap::whole(UNFOLLOWED, why.to_owned()));
    }
    for (number, (index, lock)) in wanted.iter().enumerate() {
        let clues: Vec<&TaskClue> = found.clues.iter().filter(|clue| clue.wanted == number).collect();
        let best = clues.iter().map(|clue| clue.how).max();
        // One of several that took it may have it, and it is not known which.
        let takers: BTreeSet<usize> = clues.iter().map(|clue| clue.task).collect();
        if best == Some(TaskReason::Took) && takers.len() > 1 {
            continue;
        }
        // One that is held by one has one holder: weaker reasons than the best are mistakes.
        let is_best = |clue: &&&TaskClue| lock.what != TaskUse::Exclusive || Some(clue.how) == best;
        let holders: Vec<(usize, String)> = clues
            .iter()
            .filter(is_best)
            .map(|clue| (of_program[clue.task], reason(&tasks[of_program[clue.task]], clue)))
            .collect();
        add_holders(&mut objects[*index], lock.what, holders, tasks);
    }
    let mut acts: HashMap<(RemoteAddr, TaskUse), BTreeSet<u64>> = HashMap::new();
    for (task, object, what) in found.acts {
        acts.entry((object, what)).or_default().insert(tasks[of_program[task]].id);
    }
    for waits in tasks.iter_mut().filter_map(|task| task.wait.as_mut()).flat_map(|wait| &mut wait.objects) {
        let ends: &[TaskUse] = match (waits.kind, waits.channel_use) {
            (SyncKind::Channel, Some(ChannelUse::Receive)) => &[TaskUse::Send, TaskUse::Close],
            (SyncKind::Channel, Some(ChannelUse::Send)) => &[TaskUse::Receive],
            (SyncKind::Cond | SyncKind::Semaphore, _) => &[TaskUse::Wake],
            _ => continue,
        };
        let tasks: BTreeSet<u64> =
            ends.iter().filter_map(|what| acts.get(&(waits.address, *what))).flatten().copied().collect();
        waits.woken_by = tasks.into_iter().collect();
    }
    gaps
}

/// How the object is held now, if it is one that tasks hold.
fn held_as(object: &SyncObject) -> Option<TaskUse> {
    match (object.kind, object.state) {
        (SyncKind::Mutex, SyncState::Locked) | (SyncKind::Once, SyncState::InProgress) => Some(TaskUse::Exclusive),
        (SyncKind::Rwlock, SyncState::WriteLocked) => Some(TaskUse::Exclusive),
        (SyncKind::Rwlock, SyncState::ReadLocked) => Some(TaskUse::Shared),
        (SyncKind::WaitGroup, _) => Some(TaskUse::Group),
        _ => None,
    }
}

fn add_holders(object: &mut SyncObject, what: TaskUse, holders: Vec<(usize, String)>, tasks: &mut [Task]) {
    let side = match (object.kind, what) {
        (SyncKind::Rwlock, TaskUse::Shared) => Some(Side::Read),
        (SyncKind::Rwlock, _) => Some(Side::Write),
        _ => None,
    };
    let ids: Vec<u64> = holders.iter().map(|(index, _)| tasks[*index].id).collect();
    let (address, kind) = (object.address, object.kind);
    for waiting in &object.waiting_tasks {
        let Ok(index) = tasks.binary_search_by_key(&waiting.task, |task| task.id) else { continue };
        let objects = tasks[index].wait.iter_mut().flat_map(|wait| &mut wait.objects);
        for waits in objects.filter(|waits| waits.address == address) {
            let known = if what == TaskUse::Group { &mut waits.woken_by } else { &mut waits.held_by };
            *known = ids.clone();
        }
    }
    if what == TaskUse::Group {
        return;
    }
    for (index, why) in holders {
        let task = &mut tasks[index];
        let evidence = Evidence::Inferred;
        task.holds.push(TaskHolds { address, kind, side, evidence, unpolled: false, blocks_threads: false });
        let (channel_use, evidence) = (None, Evidence::Inferred);
        object.holding_tasks.push(TaskRef { task: task.id, side, channel_use, evidence, why: Some(why) });
    }
}

/// Why `task` is taken for a holder.
fn reason(task: &Task, clue: &TaskClue) -> String {
    let frame = task.frames.iter().find(|frame| frame.pc == clue.frame && !frame.inlined);
    let function = frame.and_then(|frame| frame.function.clone()).unwrap_or_else(|| clue.frame.to_string());
    match clue.how {
        TaskReason::Took => format!("{function} took it, and was not seen to release it"),
        TaskReason::Releases => format!("{function} will release it"),
        TaskReason::Deferred => format!("{function} has deferred its release"),
    }
}
