//! Tasks of runtimes: what a look shows of them beside threads.

mod groups;
mod stuck;
mod verdict;

pub(in crate::look) use stuck::add_stuck;
pub(in crate::look) use verdict::verdict;

use super::Look;
use crate::Lwp;
use crate::model::{Snapshot, Task, Thread, ThreadState};
use crate::runtimes::{self, SeenTasks, TaskContext, TaskScope, ThreadPlace};
use std::collections::HashMap;

impl Look<'_> {
    /// Adds the tasks that runtimes of their own run on the threads of `snapshot`.
    pub fn add_tasks(&self, snapshot: &mut Snapshot, scope: TaskScope) {
        if self.target.denial().is_some() {
            return;
        }
        let place = |thread: &Thread| {
            Some(ThreadPlace { lwp: thread.lwp?, sp: thread.sp, descriptor: thread.id.map(|id| id.0) })
        };
        let threads: Vec<ThreadPlace> = snapshot.threads.iter().filter_map(place).collect();
        let context = TaskContext { target: self.target, objects: &self.objects, threads: &threads, scope };
        for SeenTasks { info, mut tasks, objects, gaps } in runtimes::tasks_of(&context) {
            settle(&mut tasks, &snapshot.threads);
            snapshot.task_runtimes.push(info);
            snapshot.tasks.append(&mut tasks);
            snapshot.objects.extend(objects);
            snapshot.gaps.extend(gaps);
        }
        if scope >= TaskScope::Stacks {
            snapshot.task_groups = groups::groups(&snapshot.tasks);
        }
    }
}

/// A task in a system call sleeps as its thread does.
fn settle(tasks: &mut [Task], threads: &[Thread]) {
    let asleep = threads.iter().filter(|thread| thread.state == ThreadState::Sleep);
    let asleep: HashMap<Lwp, &Thread> = asleep.filter_map(|thread| Some((thread.lwp?, thread))).collect();
    let in_calls = tasks.iter_mut().filter(|task| task.status == runtimes::IN_SYSTEM_CALL);
    for task in in_calls.filter(|task| task.carried_by.is_some_and(|lwp| asleep.contains_key(&lwp))) {
        task.state = ThreadState::Sleep;
    }
}
