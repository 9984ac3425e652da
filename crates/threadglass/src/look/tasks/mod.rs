//! Tasks of runtimes: what a look shows of them beside threads.

mod groups;
mod polls;
mod stuck;
mod verdict;

pub(in crate::look) use stuck::add_stuck;
pub(in crate::look) use verdict::verdict;

use super::{Look, Names, Scope};
use crate::Lwp;
use crate::model::{Gap, Snapshot, Task, Thread, ThreadState};
use crate::runtimes::{self, SeenTasks, TaskContext, TaskScope, ThreadPlace};
use std::cell::OnceCell;
use std::collections::HashMap;

impl Look<'_> {
    /// Whether the target has a runtime that runs tasks of its own on threads.
    pub fn has_tasks(&self) -> bool {
        if self.target.denial().is_some() {
            return false;
        }
        let threads = OnceCell::new();
        runtimes::has_tasks(self.target, &|runtime| {
            let places = || self.take(Scope::Threads, Names::None).map(|it| places(&it.threads)).unwrap_or_default();
            let (objects, threads) = (&*self.objects, threads.get_or_init(places));
            let (target, space, scope) = (self.target, &*self.space, TaskScope::List);
            let context = TaskContext { target, objects, space, threads, scope };
            runtime.read_in(&context).is_some()
        })
    }

    /// Adds the tasks that runtimes of their own run on the threads of `snapshot`.
    pub fn add_tasks(&self, snapshot: &mut Snapshot, scope: TaskScope) {
        if self.target.denial().is_some() {
            return;
        }
        let threads = places(&snapshot.threads);
        let (target, objects, space) = (self.target, &*self.objects, &*self.space);
        let context = TaskContext { target, objects, space, threads: &threads, scope };
        for SeenTasks { info, mut tasks, objects, gaps } in runtimes::tasks_of(&context) {
            settle(&mut tasks, &snapshot.threads);
            snapshot.task_runtimes.push(info);
            // There may be very many, and nearly always they are of one runtime.
            match snapshot.tasks.is_empty() {
                true => snapshot.tasks = tasks,
                false => snapshot.tasks.append(&mut tasks),
            }
            snapshot.objects.extend(objects);
            snapshot.gaps.extend(gaps);
        }
        for name in runtimes::other_executors(&self.objects) {
            let what = format!("tasks of {name}, if the program runs any");
            snapshot.gaps.push(Gap::whole(what, "only the tasks of tokio and Go are read"));
        }
        if scope >= TaskScope::Stacks {
            snapshot.task_groups = groups::groups(&snapshot.tasks);
        }
    }
}

/// Where the stacks and variables of `threads` are.
fn places(threads: &[Thread]) -> Vec<ThreadPlace> {
    let place =
        |thread: &Thread| Some(ThreadPlace { lwp: thread.lwp?, sp: thread.sp, descriptor: thread.id.map(|id| id.0) });
    threads.iter().filter_map(place).collect()
}

/// A task in a system call sleeps as its thread does, and one on a thread that is stopped is stopped.
fn settle(tasks: &mut [Task], threads: &[Thread]) {
    let states: HashMap<Lwp, ThreadState> =
        threads.iter().filter_map(|thread| Some((thread.lwp?, thread.state))).collect();
    for task in tasks {
        let Some(state) = task.carried_by.and_then(|lwp| states.get(&lwp)) else { continue };
        let is_taken = match state {
            ThreadState::Sleep => task.status == runtimes::IN_SYSTEM_CALL,
            ThreadState::Stopped | ThreadState::StoppedAsleep => true,
            _ => false,
        };
        if is_taken {
            task.state = *state;
        }
    }
}
