//! Processes whose threads have nothing to do, because their tasks wait: what for, and whether anything is left to end that.

use super::stuck::place_in;
use crate::look::waits::{has_not_moved, is_timed as is_timed_call};
use crate::look::{Look, facts_now, library_of};
use crate::model::{Certainty, Frame, Snapshot, SyncKind, Task, TaskGroup, Thread, ThreadState, Verdict, VerdictKind};
use crate::runtimes::is_among_threads;
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Reasons that the sentence names.
const NAMED: usize = 3;
/// Code between a wait and the function of the runtime that waits.
const PASSING: [&str; 8] = ["std::", "core::", "alloc::", "parking_lot", "mio::", "tokio::loom::", "__", "syscall"];
/// The code of runtimes in which their threads wait for tasks, and where those of them are that wait for other work.
const RUNTIME: &str = "tokio::runtime::";
const POOL: &str = "blocking::pool";

/// Whether `thread` waits for something to do, in the code of a runtime of tasks.
pub(super) fn rests(thread: &Thread) -> bool {
    thread.state == ThreadState::Sleep && innermost(thread).is_some()
}

/// Whether it does so until somebody wakes it, and not for a time.
fn rests_for_ever(thread: &Thread) -> bool {
    // Threads of the pool end after some time without work.
    let is_timed = thread.waits_for.as_ref().is_some_and(|waits| waits.timed);
    let is_of_pool = innermost(thread).is_some_and(|path| path.contains(POOL));
    let polls_for_time =
        thread.syscall.as_ref().is_some_and(|call| call.name.starts_with("epoll_") && is_timed_call(call));
    rests(thread) && (!is_timed || is_of_pool) && !polls_for_time
}

/// The function of the runtime that `thread` waits in.
fn innermost(thread: &Thread) -> Option<&str> {
    let outside_libc = thread.frames.iter().filter(|frame| library_of(frame) != Some("libc"));
    let paths = outside_libc.filter_map(path);
    let mut outer = paths.skip_while(|path| PASSING.iter().any(|start| path.starts_with(start)));
    outer.next().filter(|path| path.starts_with(RUNTIME))
}

fn path(frame: &Frame) -> Option<&str> {
    Some(frame.function.as_deref()?.trim_start_matches('<'))
}

/// The answer for a process whose threads wait for tasks.
pub(super) fn verdict(look: &Look<'_>, snapshot: &Snapshot, threads: &Verdict) -> Option<Verdict> {
    let of_others = |task: &Task| !is_among_threads(task.runtime) || task.state != ThreadState::Sleep;
    let is_at_rest = matches!(threads.kind, VerdictKind::Idle | VerdictKind::NobodyLeft);
    if snapshot.tasks.is_empty() || !is_at_rest || snapshot.tasks.iter().any(of_others) {
        return None;
    }
    let is_alone = snapshot.threads.iter().all(rests);
    let reasons = reasons(&snapshot.task_groups);
    if is_all(snapshot) && has_stood_still(look) {
        let text = format!("no task can go on, and nothing is left that could wake one: {reasons}");
        return Some(of(VerdictKind::NobodyLeft, Certainty::Likely, text));
    }
    let text = match threads.kind {
        VerdictKind::Idle if is_alone => format!("no task runs, and all threads wait for one that does: {reasons}"),
        VerdictKind::Idle => format!("{}; no task runs: {reasons}", threads.text),
        _ => return None,
    };
    Some(Verdict { text, ..threads.clone() })
}

/// Whether all threads wait for tasks, and each of those for another one.
pub(super) fn is_all(snapshot: &Snapshot) -> bool {
    is_stuck(snapshot) && snapshot.threads.iter().all(rests_for_ever)
}

fn of(kind: VerdictKind, certainty: Certainty, text: String) -> Verdict {
    Verdict { kind, certainty, text, way_out: None }
}

/// Whether every task waits for what only another one of the tasks that are known could do.
fn is_stuck(snapshot: &Snapshot) -> bool {
    let is_unread =
        snapshot.gaps.iter().any(|gap| gap.what.contains("tasks of tokio") || gap.what.contains("block_on"));
    let known: BTreeSet<RemoteAddr> = snapshot.tasks.iter().map(|task| task.address).collect();
    // What a thread does that is no task is not known here.
    let is_known = |task: &Task| {
        let objects = task.wait.iter().flat_map(|wait| &wait.objects);
        objects.filter(|object| object.kind == SyncKind::Join).all(|object| known.contains(&object.address))
    };
    !is_unread && snapshot.tasks.iter().all(|task| !may_go_on(task) && is_known(task))
}

/// Whether a task may go on without another one: time, the kernel or another process wakes it, or what it waits for is not known.
pub(super) fn may_go_on(task: &Task) -> bool {
    let Some(wait) = &task.wait else { return true };
    let ends_by_itself = wait.timed || wait.descriptor.is_some();
    ends_by_itself || wait.objects.is_empty() && !wait.for_ever
}

/// Whether no thread of the process has run since the look began, and none is new.
fn has_stood_still(look: &Look<'_>) -> bool {
    let before = look.facts();
    let mut lwps = look.target.lwps().unwrap_or_default();
    lwps.sort_unstable();
    let now: HashMap<Lwp, LwpFacts> = facts_now(look.target, &lwps);
    lwps.iter().eq(before.keys())
        && before.iter().all(|(lwp, before)| now.get(lwp).is_some_and(|now| has_not_moved(before, now)))
}

/// `5 tasks in semaphore at main.rs:45, 1 in end of a task at main.rs:52`. The end of a task is told last: that one waits, too.
fn reasons(groups: &[TaskGroup]) -> String {
    let mut reasons: BTreeMap<(bool, &str, Option<String>), usize> = BTreeMap::new();
    for group in groups {
        let reason = group.reason.as_deref().unwrap_or("a wait that is not known");
        let key = (reason.starts_with("end of a task"), reason, place_in(&group.frames));
        *reasons.entry(key).or_default() += group.tasks.len();
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|((is_end, ..), number)| (*is_end, std::cmp::Reverse(*number)));
    let more = if reasons.len() > NAMED { ", .." } else { "" };
    let named = reasons.iter().take(NAMED).enumerate().map(|(index, ((_, reason, place), number))| {
        let place = place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        let tasks = match (index, number) {
            (0, 1) => " task",
            (0, _) => " tasks",
            _ => "",
        };
        format!("{number}{tasks} in {reason}{place}")
    });
    format!("{}{more}", named.collect::<Vec<_>>().join(", "))
}
