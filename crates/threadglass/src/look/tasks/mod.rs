//! Tasks of runtimes: what a look shows of them beside threads.

mod groups;
mod guards;
mod knot;
mod own;
mod polls;
mod rest;
mod stuck;
mod verdict;
mod wakers;

pub use own::is_of_library;
pub(in crate::look) use stuck::add_stuck;
pub use stuck::called as name_of_task;
pub(in crate::look) use verdict::verdict;

use super::{Look, Names, Scope};
use crate::model::{Gap, SharedFrames, Snapshot, StackEnd, SyncObject, Task, Thread, ThreadState};
use crate::runtimes::{self, CopiedStack, SeenTasks, TaskContext, TaskScope, ThreadPlace};
use crate::{Lwp, RemoteAddr};
use std::cell::OnceCell;
use std::collections::HashMap;

impl Look<'_> {
    /// Whether the target has a runtime that runs tasks of its own on threads.
    pub fn has_tasks(&self) -> bool {
        self.has_tasks_of(&|_| true)
    }

    /// Whether its threads do nothing but run such tasks: then tasks are what threads are elsewhere.
    pub fn has_tasks_alone(&self) -> bool {
        self.has_tasks_of(&|name| !runtimes::is_among_threads(name))
    }

    fn has_tasks_of(&self, counts: &dyn Fn(&str) -> bool) -> bool {
        if self.target.denial().is_some() {
            return false;
        }
        let threads = OnceCell::new();
        runtimes::has_tasks(self.target, counts, &|runtime| {
            let places = || self.take(Scope::Threads, Names::None).map(|it| places(&it.threads)).unwrap_or_default();
            let (objects, threads) = (&*self.objects, threads.get_or_init(places));
            let (target, space, scope) = (self.target, &*self.space, TaskScope::List);
            let context = TaskContext { target, objects, space, threads, scope };
            runtime.read(&context).is_some()
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
        let mut seen = None;
        for SeenTasks { info, mut tasks, mut objects, gaps, executors, code } in runtimes::tasks_of(&context) {
            settle(&mut tasks, &snapshot.threads);
            if let Some(code) = code.filter(|_| scope == TaskScope::Held) {
                snapshot.gaps.extend(wakers::add(self, &*code, &mut tasks, &mut objects));
            }
            snapshot.task_runtimes.push(info);
            seen = seen.or(executors);
            // There may be very many, and nearly always they are of one runtime.
            match snapshot.tasks.is_empty() {
                true => snapshot.tasks = tasks,
                false => snapshot.tasks.append(&mut tasks),
            }
            add_objects(&mut snapshot.objects, objects);
            snapshot.gaps.extend(gaps);
        }
        let seen = seen.or_else(|| executors_in_stacks(&snapshot.threads));
        for name in runtimes::other_executors(&self.objects) {
            // A program that has an executor among its crates need not run it.
            let what = match &seen {
                None => format!("tasks of {name}, if the program runs any"),
                Some(seen) if seen.iter().any(|seen| name.starts_with(seen)) => format!("tasks of {name}"),
                Some(_) => continue,
            };
            snapshot.gaps.push(Gap::whole(what, "only the tasks of tokio and Go are read"));
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
        let (target, objects, space) = (self.target, &*self.objects, &*self.space);
        let context = TaskContext { target, objects, space, threads: &threads, scope };
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

/// Adds the objects of tasks. Threads may wait for some of these as well.
fn add_objects(all: &mut Vec<SyncObject>, of_tasks: Vec<SyncObject>) {
    let known: HashMap<RemoteAddr, usize> = all.iter().enumerate().map(|(index, it)| (it.address, index)).collect();
    for object in of_tasks {
        match known.get(&object.address).and_then(|index| all.get_mut(*index)) {
            Some(known) => {
                known.holding_tasks.extend(object.holding_tasks);
                known.waiting_tasks.extend(object.waiting_tasks);
            }
            None => all.push(object),
        }
    }
}

/// Where the stacks and variables of `threads` are.
fn places(threads: &[Thread]) -> Vec<ThreadPlace> {
    let place =
        |thread: &Thread| Some(ThreadPlace { lwp: thread.lwp?, sp: thread.sp, descriptor: thread.id.map(|id| id.0) });
    threads.iter().filter_map(place).collect()
}

/// The executors that threads are in, of those whose tasks are not read; `None` if no thread is seen in one, or a stack is not known.
fn executors_in_stacks(threads: &[Thread]) -> Option<Vec<&'static str>> {
    let names = threads.iter().flat_map(|thread| thread.frames.iter()).filter_map(|frame| frame.function.as_deref());
    let found: Vec<&str> = names.filter_map(runtimes::executor_of).collect();
    (!found.is_empty() && threads.iter().all(|thread| !thread.frames.is_empty())).then_some(found)
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
