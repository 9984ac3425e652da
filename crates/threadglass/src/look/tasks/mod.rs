//! Tasks of runtimes: what a look shows of them beside threads.

mod groups;
mod knot;
mod stuck;
mod verdict;
mod wakers;

pub(in crate::look) use stuck::add_stuck;
pub(in crate::look) use verdict::verdict;

use super::{Look, Names, Scope};
use crate::Lwp;
use crate::model::{SharedFrames, Snapshot, StackEnd, Task, Thread, ThreadState};
use crate::runtimes::{self, CopiedStack, SeenTasks, TaskContext, TaskScope, ThreadPlace};
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
            let context = TaskContext { target: self.target, objects, threads, scope: TaskScope::List };
            runtime.read(&context).is_some()
        })
    }

    /// Adds the tasks that runtimes of their own run on the threads of `snapshot`.
    pub fn add_tasks(&self, snapshot: &mut Snapshot, scope: TaskScope) {
        if self.target.denial().is_some() {
            return;
        }
        let threads = places(&snapshot.threads);
        let context = TaskContext { target: self.target, objects: &self.objects, threads: &threads, scope };
        for SeenTasks { info, mut tasks, mut objects, gaps, code } in runtimes::tasks_of(&context) {
            settle(&mut tasks, &snapshot.threads);
            if let Some(code) = code.filter(|_| scope == TaskScope::Held) {
                snapshot.gaps.extend(wakers::add(self, &*code, &mut tasks, &mut objects));
            }
            snapshot.task_runtimes.push(info);
            // There may be very many, and nearly always they are of one runtime.
            match snapshot.tasks.is_empty() {
                true => snapshot.tasks = tasks,
                false => snapshot.tasks.append(&mut tasks),
            }
            snapshot.objects.extend(objects);
            snapshot.gaps.extend(gaps);
        }
        if scope >= TaskScope::Stacks {
            snapshot.task_groups = groups::groups(&snapshot.tasks);
        }
    }
}

impl Look<'_> {
    /// Adds the stacks of tasks that ran while they were copied.
    pub(crate) fn add_running_tasks(&self, snapshot: &mut Snapshot, copied: &[CopiedStack]) {
        if copied.is_empty() {
            return;
        }
        let (threads, scope) = (places(&snapshot.threads), TaskScope::Stacks);
        let context = TaskContext { target: self.target, objects: &self.objects, threads: &threads, scope };
        let stacks = runtimes::running_tasks(&context, copied);
        for (copied, stack) in copied.iter().zip(stacks) {
            let is_it = |task: &&mut Task| (task.runtime, task.id) == (copied.runtime, copied.id);
            let Some(task) = snapshot.tasks.iter_mut().find(is_it) else { continue };
            let unknown = || {
                let why = "it was in the runtime or in C when its thread was stopped".to_owned();
                (SharedFrames::default(), StackEnd::Unknown { why })
            };
            let (frames, end) = stack.unwrap_or_else(unknown);
            (task.frames, task.frames_end) = (frames, Some(end));
        }
        snapshot.task_groups = groups::groups(&snapshot.tasks);
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
