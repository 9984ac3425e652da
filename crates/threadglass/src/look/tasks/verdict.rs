//! The answer in one sentence for a program that runs tasks.

use super::rest::{self, may_go_on};
use super::stuck::{called, place};
use super::wakers::UNFOLLOWED;
use crate::look::Look;
use crate::look::waits::{count, is_timed};
use crate::model::{
    Certainty, ChannelUse, Finding, FindingKind, Snapshot, SyncKind, SyncObject, Task, TaskWaitsFor, ThreadState,
    ThreadType, Verdict, VerdictKind,
};
use crate::runtimes::is_among_threads;
use std::collections::BTreeMap;

/// Reasons that the sentence names.
const NAMED: usize = 3;

/// What the tasks of `snapshot` say; `None` if it has none, or `threads` is the better answer.
pub(in crate::look) fn verdict(look: &Look<'_>, snapshot: &Snapshot, threads: &Verdict) -> Option<Verdict> {
    if let Some(verdict) = rest::verdict(look, snapshot, threads) {
        return Some(verdict);
    }
    let of_threads = [VerdictKind::Deadlock, VerdictKind::NobodyLeft, VerdictKind::Stopped, VerdictKind::Unkillable];
    // Where threads do other work as well, what they do is the answer.
    let is_all = |task: &&Task| task.kind == ThreadType::User && !is_among_threads(task.runtime);
    let tasks: Vec<&Task> = snapshot.tasks.iter().filter(is_all).collect();
    if tasks.is_empty() || of_threads.contains(&threads.kind) {
        return None;
    }
    let nobody_left = || if has_timers(snapshot) { None } else { nobody_left(&tasks) };
    Some(
        nobody_left()
            .or_else(|| behind_task(snapshot))
            .or_else(|| behind_lock(snapshot))
            .unwrap_or_else(|| plain(snapshot, &tasks)),
    )
}

fn of(kind: VerdictKind, certainty: Certainty, text: String) -> Verdict {
    Verdict { kind, certainty, text, way_out: None }
}

/// Whether a timer of the runtime may wake a task: then a thread of the runtime waits for events until that time.
fn has_timers(snapshot: &Snapshot) -> bool {
    let calls = snapshot.threads.iter().filter_map(|thread| thread.syscall.as_ref());
    calls.filter(|call| call.name.starts_with("epoll_")).any(is_timed)
}

/// All tasks wait for each other: nobody is left to wake any of them.
fn nobody_left(tasks: &[&Task]) -> Option<Verdict> {
    if tasks.iter().any(|task| may_go_on(task)) {
        return None;
    }
    let all = count(tasks.len(), "task waits", "tasks wait");
    let text = format!("all {all} for another one, and none is left to go on: {}", reasons(tasks));
    Some(of(VerdictKind::NobodyLeft, Certainty::Likely, text))
}

/// The task that most tasks wait for.
fn behind_task(snapshot: &Snapshot) -> Option<Verdict> {
    let is_root = |finding: &&Finding| finding.kind == FindingKind::LongChain && !finding.tasks.is_empty();
    let root = snapshot.findings.iter().find(is_root)?;
    Some(of(VerdictKind::Behind, root.certainty, root.text.clone()))
}

/// The lock that most tasks wait for.
fn behind_lock(snapshot: &Snapshot) -> Option<Verdict> {
    let is_lock = |object: &&SyncObject| {
        matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once) && !object.waiting_tasks.is_empty()
    };
    let lock = snapshot.objects.iter().filter(is_lock).max_by_key(|object| object.waiting_tasks.len())?;
    let waiting = count(lock.waiting_tasks.len(), "task waits", "tasks wait");
    let what = format!("{} {}", lock.kind.word(), lock.name.clone().unwrap_or_else(|| lock.address.to_string()));
    let others = snapshot.objects.iter().filter(is_lock).count() - 1;
    let others = match others {
        0 => String::new(),
        number => format!("; tasks wait for {} as well", count(number, "other lock", "other locks")),
    };
    let runs = |task: &Task| task.kind == ThreadType::User && task.state == ThreadState::Active;
    let holder = if snapshot.gaps.iter().any(|gap| gap.what == UNFOLLOWED) {
        "which does not record who holds it, and not all tasks were followed"
    } else if snapshot.tasks.iter().any(runs) {
        "which no task that waits is seen to hold: one that runs may have it"
    } else {
        "which no task is seen to hold: the one that took it may have ended, or gone on, without releasing it"
    };
    let at =
        |task: &&Task| task.wait.iter().flat_map(|wait| &wait.objects).any(|object| object.address == lock.address);
    let place = snapshot.tasks.iter().find(at).and_then(place).map(|place| format!(" at {place}")).unwrap_or_default();
    let text = format!("{waiting} for {what}{place}, {holder}{others}");
    Some(of(VerdictKind::Unknown, Certainty::Possible, text))
}

fn plain(snapshot: &Snapshot, tasks: &[&Task]) -> Verdict {
    let number = |state: ThreadState| tasks.iter().filter(|task| task.state == state).count();
    let (running, runnable) = (number(ThreadState::Active), number(ThreadState::Run));
    if running + runnable > 0 {
        let more = if runnable > 0 { format!(", {runnable} more could run") } else { String::new() };
        let text = format!("{}{more}", count(running, "task runs", "tasks run"));
        return of(VerdictKind::Busy, Certainty::Certain, text);
    }
    // Where not all tasks were followed, somebody who was not seen may be about to.
    let is_whole = !snapshot.gaps.iter().any(|gap| gap.what == UNFOLLOWED);
    let unseen = if is_whole { unseen(tasks) } else { String::new() };
    of(VerdictKind::Idle, Certainty::Certain, format!("no task runs: {}{unseen}", reasons(tasks)))
}

/// Tasks that have something to hand over, or wait for others to be done, and nobody was seen who would end that: how leaks begin.
fn unseen(tasks: &[&Task]) -> String {
    let waits = |wanted: fn(&TaskWaitsFor) -> bool| -> Vec<&Task> {
        let is_it = |task: &&&Task| {
            let objects = task.wait.as_ref().map(|wait| wait.objects.as_slice()).unwrap_or_default();
            !objects.is_empty() && objects.iter().all(|object| object.woken_by.is_empty() && wanted(object))
        };
        tasks.iter().filter(is_it).copied().collect()
    };
    let senders = waits(|object| object.channel_use == Some(ChannelUse::Send));
    let waiters = waits(|object| object.kind == SyncKind::WaitGroup);
    let say = |tasks: &[&Task], what: &str| Some(format!("; nobody is seen who would {what} {}", first_of(tasks)?));
    // Who waits for no channel at all has forgotten to make one. An empty select is how others wait on purpose.
    let is_of_none = |task: &&&Task| task.wait.as_ref().is_some_and(|wait| wait.reason.contains("nil chan"));
    let of_none: Vec<&Task> = tasks.iter().filter(is_of_none).copied().collect();
    let for_ever = first_of(&of_none).map(|who| format!("; nobody can ever wake {who}: the channel is nil"));
    let texts = [say(&senders, "receive from"), say(&waiters, "leave the waitgroup that is awaited by"), for_ever];
    texts.into_iter().flatten().collect()
}

/// `task 7 (main.run) at run.go:12 and 3 others`
fn first_of(tasks: &[&Task]) -> Option<String> {
    let first = tasks.first()?;
    let at = place(first).map(|place| format!(" at {place}")).unwrap_or_default();
    let others = match tasks.len() - 1 {
        0 => String::new(),
        number => format!(" and {}", count(number, "other", "others")),
    };
    Some(format!("{}{at}{others}", called(first)))
}

/// `12 tasks in chan receive, 3 in IO wait, ..`
fn reasons(tasks: &[&Task]) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        *reasons.entry(task.wait.as_ref().map_or(task.status, |wait| &*wait.reason)).or_default() += 1;
    }
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let more = if reasons.len() > NAMED { ", .." } else { "" };
    let named = reasons.iter().take(NAMED).enumerate().map(|(index, (reason, number))| match (index, number) {
        (0, 1) => format!("1 task in {reason}"),
        (0, number) => format!("{number} tasks in {reason}"),
        (_, number) => format!("{number} in {reason}"),
    });
    format!("{}{more}", named.collect::<Vec<_>>().join(", "))
}
