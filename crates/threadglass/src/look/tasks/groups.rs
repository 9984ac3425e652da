//! Tasks with the same stack that wait for the same reason: how leaks and pools look.

use crate::model::{SharedText, Task, TaskGroup, ThreadState, ThreadType};
use std::collections::HashMap;

/// The groups of `tasks`, the largest first.
pub(super) fn groups(tasks: &[Task]) -> Vec<TaskGroup> {
    type Key<'a> = (&'static str, usize, ThreadState, Option<&'a str>);
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let mut groups: Vec<TaskGroup> = Vec::new();
    for task in tasks {
        let reason = task.wait.as_ref().map(|wait| &*wait.reason);
        // Equal stacks are the same one.
        let key = (task.runtime, task.frames.identity(), task.state, reason);
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(group_of(task));
        }
        let group = &mut groups[place];
        group.tasks.push(task.id);
        group.oldest_ms = group.oldest_ms.max(task.wait.as_ref().and_then(|wait| wait.since_ms));
    }
    groups.sort_by_key(|group| (group.kind == ThreadType::System, std::cmp::Reverse(group.tasks.len())));
    groups
}

fn group_of(task: &Task) -> TaskGroup {
    let in_call = || SharedText::from(task.status);
    TaskGroup {
        runtime: task.runtime,
        tasks: Vec::new(),
        kind: task.kind,
        state: task.state,
        reason: task.wait.as_ref().map(|wait| wait.reason.clone()).or_else(|| task.carried_by.map(|_| in_call())),
        oldest_ms: None,
        created_by: task.created_by.clone(),
        frames: task.frames.clone(),
        frames_end: task.frames_end.clone(),
    }
}
