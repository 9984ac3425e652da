//! What moved among the tasks of two snapshots.
//!
//! Runtimes do not count how often a task runs, so one that is found twice at a place may have stood there or have come back. Only
//! where its runtime has noted since when it waits, and that is from before the earlier snapshot, has it stood.

use crate::model::{SharedText, Snapshot, Task, TaskChange, TaskDiff, TaskPlace};
use crate::{Lwp, RemoteAddr};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Which task: its runtime's number for it, and where that has none (what a thread awaits in `block_on`), the thread and place.
type Key = (&'static str, u64, Option<(Option<Lwp>, RemoteAddr)>);

fn key(task: &Task) -> Key {
    (task.runtime, task.id, (task.id == 0).then_some((task.bound_to, task.address)))
}

fn place(task: &Task) -> TaskPlace {
    let reason = task.wait.as_ref().map(|wait| wait.reason.clone());
    let in_call = || task.carried_by.map(|_| SharedText::from(task.status));
    TaskPlace { state: task.state, reason: reason.or_else(in_call), frames: task.frames.clone() }
}

/// What became of the tasks, those of which the same can be said together. `span` is the time in milliseconds from before the
/// earlier ones were read until after the later ones were.
pub(super) fn changes(span: Option<u64>, [before, after]: &[Option<Snapshot>; 2]) -> Vec<TaskDiff> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let sides = [before, after].map(|it| it.tasks.iter().map(|task| (key(task), task)).collect::<HashMap<_, _>>());
    let keys: BTreeSet<&Key> = sides.iter().flat_map(HashMap::keys).collect();
    let mut groups: Vec<TaskDiff> = Vec::new();
    let mut known = HashMap::new();
    for key in keys {
        let [was, is] = [0, 1].map(|side| sides[side].get(key).copied());
        let Some(task) = is.or(was) else { continue };
        let waited = is.and_then(|task| task.wait.as_ref()?.since_ms);
        let stood = waited.filter(|waited| was.is_some() && span.is_some_and(|span| *waited >= span));
        let places = [was.map(place), is.map(place)];
        let change = match &places {
            [Some(_), Some(_)] if stood.is_some() => TaskChange::Stands,
            [Some(one), Some(other)] if one == other => TaskChange::SamePlace,
            [Some(_), Some(_)] => TaskChange::Moved,
            [None, _] => TaskChange::New,
            [Some(_), None] => TaskChange::Ended,
        };
        let [was, is] = places;
        let was = was.filter(|was| is.as_ref() != Some(was));
        let index = *known.entry((change, task.runtime, was.clone(), is.clone())).or_insert(groups.len());
        if index == groups.len() {
            let created_by = task.created_by.clone();
            let tasks = Vec::new();
            groups.push(TaskDiff {
                change,
                runtime: task.runtime,
                tasks,
                created_by,
                stood_ms: stood,
                before: was,
                after: is,
            });
        }
        let group = &mut groups[index];
        group.tasks.push(task.id);
        group.stood_ms = group.stood_ms.min(stood);
    }
    groups.sort_by_key(|group| (group.change, Reverse(group.tasks.len())));
    groups
}
