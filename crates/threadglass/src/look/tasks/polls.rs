//! Threads that have been in one poll of a task for long: in a call that blocks, or in a computation. Tasks that could run
//! starve meanwhile.

use super::stuck::Stuck;
use crate::look::Look;
use crate::look::waits::{count, place_of};
use crate::model::{Certainty, Finding, FindingKind, Frame, Snapshot, Task, Thread, ThreadState};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

/// From one look to the next where a thread runs: a task that could run is polled before that.
const PAUSE: Duration = Duration::from_millis(150);
/// A poll that is asleep for so long is told although no task starves.
const LONG_MS: u64 = 1000;
/// With this, tokio gives the other tasks of a worker to another thread.
const HANDED_ON: &str = "block_in_place";

/// The threads of one scheduler that have been in one poll each, maybe for long.
pub(super) struct LongPolls {
    scheduler: Option<RemoteAddr>,
    /// Each thread, with the task that it polls, and whether it is asleep.
    polls: Vec<(Lwp, RemoteAddr, bool)>,
    /// Tasks that could run.
    runnable: BTreeSet<u64>,
    /// For how long the one that has slept longest has not run.
    idle_ms: Option<u64>,
}

/// Polls that may have lasted for long, by scheduler.
pub(super) fn long_polls(look: &Look<'_>, snapshot: &Snapshot) -> Vec<LongPolls> {
    let threads: BTreeMap<Lwp, &Thread> =
        snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
    let mut found: BTreeMap<RemoteAddr, LongPolls> = BTreeMap::new();
    for task in snapshot.tasks.iter().filter(|task| task.scheduler.is_some()) {
        let Some(address) = task.scheduler else { continue };
        let new =
            || LongPolls { scheduler: Some(address), polls: Vec::new(), runnable: BTreeSet::new(), idle_ms: None };
        let polls = found.entry(address).or_insert_with(new);
        match (task.state, task.carried_by.and_then(|lwp| threads.get(&lwp))) {
            (ThreadState::Run, _) => drop(polls.runnable.insert(task.id)),
            (ThreadState::Active, Some(thread)) if !hands_on(thread) => {
                let Some(lwp) = thread.lwp else { continue };
                polls.polls.push((lwp, task.address, thread.state == ThreadState::Sleep));
            }
            _ => {}
        }
    }
    let mut found: Vec<LongPolls> = found.into_values().filter(|polls| !polls.polls.is_empty()).collect();
    for polls in &mut found {
        let asleep: Vec<Lwp> = polls.polls.iter().filter(|(.., asleep)| *asleep).map(|(lwp, ..)| *lwp).collect();
        polls.idle_ms = look.target.idle_ms(&asleep).into_iter().flatten().max();
    }
    let stuck = Stuck::new(snapshot);
    found.retain(|polls| {
        let is_out = stuck.workers_of(polls.scheduler).is_none_or(|workers| polls.polls.len() as u64 >= workers);
        let sleeps = polls.polls.iter().any(|(.., asleep)| *asleep);
        let is_long = sleeps && polls.idle_ms.is_some_and(|idle| idle >= LONG_MS);
        is_long || !polls.runnable.is_empty() && (sleeps || is_out)
    });
    found
}

/// Whether the thread has left its other tasks to others.
fn hands_on(thread: &Thread) -> bool {
    let is_it = |frame: &Frame| frame.function.as_deref().is_some_and(|name| name.contains(HANDED_ON));
    thread.frames.iter().any(is_it)
}

/// Lets some time go by if threads run: in a live process others could be polled meanwhile.
pub(super) fn wait_for(polls: &[LongPolls], snapshot: &Snapshot) {
    let runs = |polls: &LongPolls| polls.polls.iter().any(|(.., asleep)| !asleep);
    if snapshot.target.core.is_none() && polls.iter().any(runs) {
        thread::sleep(PAUSE);
    }
}

impl LongPolls {
    pub(super) fn threads(&self) -> impl Iterator<Item = Lwp> {
        self.polls.iter().map(|(lwp, ..)| *lwp)
    }

    /// What is wrong, if the look `again` shows the same.
    pub(super) fn confirmed(
        &self,
        stuck: &Stuck<'_>,
        again: &Snapshot,
        is_still: &dyn Fn(&Lwp) -> bool,
    ) -> Option<Finding> {
        let now: BTreeMap<RemoteAddr, &Task> = again.tasks.iter().map(|task| (task.address, task)).collect();
        let polls_it = |lwp: Lwp, task: RemoteAddr| now.get(&task).is_some_and(|task| task.carried_by == Some(lwp));
        let same = self.polls.iter().filter(|(lwp, task, _)| polls_it(*lwp, *task));
        // One that slept and has not moved was in this call all the time; of one that runs two looks tell.
        let same: Vec<&(Lwp, RemoteAddr, bool)> = same.filter(|(lwp, _, asleep)| !asleep || is_still(lwp)).collect();
        let is_of = |task: &&Task| task.scheduler == self.scheduler && task.state == ThreadState::Run;
        let runnable: BTreeSet<u64> = again.tasks.iter().filter(is_of).map(|task| task.id).collect();
        let starving = self.runnable.intersection(&runnable).count();
        let workers = stuck.workers_of(self.scheduler);
        let is_out = workers.is_some_and(|workers| same.len() as u64 >= workers);
        type Poll = (Lwp, RemoteAddr, bool);
        let (asleep, run): (Vec<&Poll>, Vec<&Poll>) = same.into_iter().partition(|(.., asleep)| *asleep);
        let is_core = again.target.core.is_some();
        let is_long = self.idle_ms.is_some_and(|idle| idle >= LONG_MS);
        // Of threads that run in a core only one moment is known.
        let told: Vec<Lwp> = match () {
            () if starving > 0 && is_out && (run.is_empty() || !is_core) => {
                asleep.iter().chain(&run).map(|(lwp, ..)| *lwp).collect()
            }
            () if !asleep.is_empty() && (starving > 0 || is_long) => asleep.iter().map(|(lwp, ..)| *lwp).collect(),
            () => return None,
        };
        let doing = match asleep.is_empty() {
            true => "in the same poll each time it was looked at, and running",
            false => "in a call that blocks",
        };
        let place = told.iter().find_map(|lwp| place_of(stuck.thread(*lwp)?));
        let place = place.map(|place| format!(", in {place}")).unwrap_or_default();
        let idle = self.idle_ms.filter(|_| !asleep.is_empty() && is_long);
        let idle = idle.map(|ms| format!(", for {} s", ms / 1000)).unwrap_or_default();
        let starves = match starving {
            0 => String::new(),
            number => format!("; {} could run", count(number, "task", "tasks")),
        };
        let left = match (starving, is_out) {
            (0, _) => "",
            (_, true) => " and no worker is left for them",
            (1, false) => " and has not been polled",
            (_, false) => " and have not been polled",
        };
        let left = if starving == 1 { left.replace("them", "it") } else { left.to_owned() };
        let text = format!("{} {doing}{idle}{place}{starves}{left}", stuck.polling(&told));
        let certainty = if starving > 0 && is_out { Certainty::Likely } else { Certainty::Possible };
        Some(stuck.finding(FindingKind::BlockedWorker, certainty, told, text))
    }
}
