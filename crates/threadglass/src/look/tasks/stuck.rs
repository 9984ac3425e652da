//! Tasks that cannot go on: circles of tasks, locks that were given to who does not ask for them, workers that block.

use super::knot::{Block, Knot, Node};
use crate::look::waits::{count, has_not_moved};
use crate::look::{Look, facts_now};
use crate::model::{
    Certainty, ChannelUse, Evidence, Finding, FindingKind, Member, Side, Snapshot, SyncKind, Task, TaskHolds, TaskWait,
    Thread, ThreadState,
};
use crate::runtimes::{TaskScope, is_among_threads};
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap};

/// Tasks of one chain of waits.
const MAX_PATH: usize = 1024;
/// Circles that are told.
const MAX_CIRCLES: usize = 16;
/// Tasks that a sentence names.
const NAMED: usize = 4;

/// Adds what is wrong with the tasks of `snapshot`. What is found is looked at twice.
pub(in crate::look) fn add_stuck(look: &Look<'_>, snapshot: &mut Snapshot) {
    doubt_threads(snapshot);
    let found = Stuck::new(snapshot).all();
    if found.is_empty() {
        return;
    }
    let mut again = Snapshot { tasks: Vec::new(), task_runtimes: Vec::new(), gaps: Vec::new(), ..snapshot.clone() };
    look.add_tasks(&mut again, TaskScope::Held);
    // Who has the other end of a descriptor was asked once.
    let ends: HashMap<u64, &TaskWait> =
        snapshot.tasks.iter().filter_map(|task| Some((task.id, task.wait.as_ref()?))).collect();
    for task in &mut again.tasks {
        let Some((wait, before)) = task.wait.as_mut().zip(ends.get(&task.id)) else { continue };
        if wait.descriptor == before.descriptor {
            wait.outside.clone_from(&before.outside);
        }
    }
    let confirmed = Stuck::new(&again).all();
    let is_same = |one: &Finding, other: &Finding| {
        (one.kind, &one.text, &one.threads, &one.tasks) == (other.kind, &other.text, &other.threads, &other.tasks)
    };
    let places = |snapshot: &Snapshot| -> HashMap<u64, _> {
        snapshot.tasks.iter().map(|task| (task.id, (task.address, task.pc, task.sp))).collect()
    };
    let (stood, stands) = (places(snapshot), places(&again));
    let has_stayed = |task: &u64| stood.get(task).is_some_and(|place| stands.get(task) == Some(place));
    let blocked: Vec<Lwp> = found.iter().flat_map(|finding| finding.threads.iter().copied()).collect();
    let (before, now): (_, HashMap<Lwp, LwpFacts>) = (look.facts(), facts_now(look.target, &blocked));
    let is_still =
        |lwp: &Lwp| before.get(lwp).zip(now.get(lwp)).is_some_and(|(before, now)| has_not_moved(before, now));
    let is_confirmed = |one: &Finding| {
        let is_there = confirmed.iter().any(|other| is_same(one, other));
        is_there && one.threads.iter().all(is_still) && one.tasks.iter().all(has_stayed)
    };
    let still: Vec<Finding> = found.into_iter().filter(is_confirmed).collect();
    // What tasks hold is known now.
    let explained: BTreeSet<RemoteAddr> = still.iter().flat_map(|finding| finding.objects.iter().copied()).collect();
    let is_explained = |finding: &Finding| finding.objects.first().is_some_and(|object| explained.contains(object));
    snapshot.findings.retain(|finding| finding.kind != FindingKind::HolderUnknown || !is_explained(finding));
    // The same circle, as its threads show it.
    let is_told = |finding: &Finding| {
        let is_part = |told: &Finding| finding.threads.iter().all(|lwp| told.threads.contains(lwp));
        finding.kind.is_hang()
            && !finding.threads.is_empty()
            && still.iter().any(|told| !told.tasks.is_empty() && is_part(told))
    };
    snapshot.findings.retain(|finding| !is_told(finding));
    snapshot.findings.splice(0..0, still);
}

/// A lock of C names the thread that took it. Where tasks go from thread to thread, the task that has the lock may run elsewhere,
/// and will release it from there.
fn doubt_threads(snapshot: &mut Snapshot) {
    let moving: BTreeSet<Lwp> =
        snapshot.tasks.iter().filter(|task| may_have_moved(task)).filter_map(|task| task.carried_by).collect();
    for finding in snapshot.findings.iter_mut().filter(|finding| finding.kind.is_hang()) {
        if finding.certainty > Certainty::Possible && finding.threads.iter().any(|lwp| moving.contains(lwp)) {
            finding.certainty = Certainty::Possible;
            finding.text += ", unless a task has taken the lock that runs on another thread now";
        }
    }
}

/// Whether the thread that runs `task` may have run others before.
fn may_have_moved(task: &Task) -> bool {
    !is_among_threads(task.runtime) && task.bound_to.is_none()
}

/// The tasks and threads of a look, by what leads to them.
struct Stuck<'s> {
    snapshot: &'s Snapshot,
    threads: HashMap<Lwp, &'s Thread>,
}

impl<'s> Stuck<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        Self { snapshot, threads }
    }

    fn all(&self) -> Vec<Finding> {
        let knot = Knot::new(self.snapshot);
        let mut found = self.circles(&knot);
        found.extend(self.roots(&knot));
        found.extend(self.blocked_by_tasks());
        found.extend(self.blocked_workers());
        found
    }

    /// Circles in which each task waits for what the next one holds or has to do.
    fn circles(&self, knot: &Knot<'_>) -> Vec<Finding> {
        let mut found: Vec<(Vec<Node>, Finding)> = Vec::new();
        let mut leads_to: HashMap<Node, Option<usize>> = HashMap::new();
        let mut behind: HashMap<usize, usize> = HashMap::new();
        for node in knot.waiting() {
            let (mut path, mut at): (Vec<Node>, Node) = (Vec::new(), node);
            let mut end = None;
            // Of those that a task waits for one that cannot go on is enough.
            while path.len() < MAX_PATH && knot.stuck.contains(&at) {
                if let Some(known) = leads_to.get(&at) {
                    end = *known;
                    break;
                }
                if let Some(start) = path.iter().position(|other| *other == at) {
                    if let Some(circle) = self.circle(knot, &path[start..]).filter(|_| found.len() < MAX_CIRCLES) {
                        end = Some(found.len());
                        found.push((path[start..].to_vec(), circle));
                    }
                    break;
                }
                path.push(at);
                let Some((next, _)) = knot.next(at) else { break };
                at = next;
            }
            for node in path {
                if let Some(number) = end.filter(|number| !found[*number].0.contains(&node)) {
                    *behind.entry(number).or_default() += 1;
                }
                leads_to.insert(node, end);
            }
        }
        for (number, (_, finding)) in found.iter_mut().enumerate() {
            if let Some(behind) = behind.get(&number) {
                finding.text += &format!("; {} behind them", count(*behind, "more task waits", "more tasks wait"));
            }
        }
        found.into_iter().map(|(_, finding)| finding).collect()
    }

    fn circle(&self, knot: &Knot<'_>, circle: &[Node]) -> Option<Finding> {
        let mut certainty = Certainty::Certain;
        let (mut steps, mut objects, mut is_at_work) = (Vec::new(), Vec::new(), false);
        for node in circle {
            let (next, block) = knot.next(*node)?;
            let (certain, text) = self.step(knot, *node, next, block);
            certainty = certainty.min(certain);
            is_at_work |= match block.kind {
                SyncKind::Channel => block.channel_use == Some(ChannelUse::Send),
                kind => kind != SyncKind::Cond,
            };
            objects.push(block.object);
            steps.push(text);
        }
        let tasks: Vec<&Task> = circle.iter().filter_map(|node| knot.task(*node)).collect();
        // Idle tasks that hand each other work look like a circle of receives. One that sends has something to hand over.
        let first = tasks.first().filter(|_| is_at_work)?;
        let text = match steps.as_slice() {
            [one] => one.clone(),
            _ => format!("{} tasks of {} wait for each other: {}", tasks.len(), first.runtime, steps.join("; ")),
        };
        let threads = circle.iter().filter_map(|node| knot.thread(*node)).collect();
        let finding = self.finding(FindingKind::TaskDeadlock, certainty, threads, text);
        Some(Finding { objects, tasks: tasks.iter().map(|task| task.id).collect(), ..finding })
    }

    /// That `node` waits for `next`, and how sure that is.
    fn step(&self, knot: &Knot<'_>, node: Node, next: Node, block: &Block) -> (Certainty, String) {
        let who = |node: Node| match (knot.task(node), node) {
            (Some(task), _) => called(task),
            (None, Node::Thread(lwp)) => format!("thread {lwp}"),
            (None, Node::Task(_)) => "a task".to_owned(),
        };
        let place = knot.task(node).and_then(place).map(|place| format!(" at {place}")).unwrap_or_default();
        let held = knot.task(next).and_then(|task| task.holds.iter().find(|held| held.address == block.object));
        let wanted = object(block.kind, block.object);
        let itself = node == next;
        let (certain, rest) = match (block.kind, block.channel_use) {
            (SyncKind::Channel, how) => {
                let act = if how == Some(ChannelUse::Send) { "receive" } else { "send" };
                let only = if itself { "itself".to_owned() } else { others(&who(next), block.by.len()) };
                (Certainty::Possible, format!("where only {only} is seen to {act}"))
            }
            (SyncKind::Cond, _) => (Certainty::Possible, format!("which only {} is seen to signal", who(next))),
            (SyncKind::WaitGroup, _) if itself => (Certainty::Likely, "which it has yet to leave itself".to_owned()),
            (SyncKind::WaitGroup, _) => (Certainty::Likely, format!("which {} has yet to leave", who(next))),
            (SyncKind::Rwlock, _)
                if block.side == Some(Side::Read) && held.is_some_and(|it| it.side == Some(Side::Read)) =>
            {
                let reader = if itself { "it".to_owned() } else { who(next) };
                (Certainty::Likely, format!("for which a writer is queued before it, and which {reader} reads already"))
            }
            (kind, _) => {
                // Of a semaphore somebody who is not seen may have the rest. A lock of C names the thread that took it, which may run
                // another task now.
                let is_sure = kind != SyncKind::Semaphore && held.is_none_or(|held| held.evidence < Evidence::Inferred);
                let of_c = |task: &&Task| held.is_none() && kind != SyncKind::Join && may_have_moved(task);
                match knot.task(next) {
                    Some(task) if of_c(&task) => {
                        let whose = match itself {
                            true => "its own thread".to_owned(),
                            false => format!("the thread of {}", who(next)),
                        };
                        let text = format!("which {whose} has taken, maybe when it ran another task");
                        (Certainty::Possible, text)
                    }
                    task => {
                        let certain = if is_sure { Certainty::Certain } else { Certainty::Likely };
                        (certain, holds(itself, &who(next), task.map_or("", |task| task.runtime), kind, held))
                    }
                }
            }
        };
        (certain, format!("{} awaits {wanted}{place}, {rest}", who(node)))
    }

    /// Tasks that others wait for, directly or not, and that may go on, or never will although they wait for nobody.
    fn roots(&self, knot: &Knot<'_>) -> Vec<Finding> {
        let is_lock = |block: &Block| !matches!(block.kind, SyncKind::Channel | SyncKind::Cond | SyncKind::WaitGroup);
        let mut behind: HashMap<Node, (usize, Option<&Block>)> = HashMap::new();
        let mut ends: HashMap<Node, Option<(Node, &Block)>> = HashMap::new();
        for node in knot.waiting() {
            let (mut path, mut at, mut end) = (vec![node], node, None);
            while let Some((next, block)) = knot.only(at).filter(|(_, block)| is_lock(block)) {
                if let Some(known) = ends.get(&next) {
                    end = known.or(Some((next, block)));
                    break;
                }
                if path.contains(&next) || path.len() >= MAX_PATH {
                    end = None;
                    break;
                }
                path.push(next);
                (at, end) = (next, Some((next, block)));
            }
            for node in path {
                // The root itself waits for nobody of these.
                let end = end.filter(|(root, _)| *root != node);
                ends.insert(node, end);
            }
            if let Some((root, block)) = end.filter(|(root, _)| *root != node) {
                let root = behind.entry(root).or_default();
                *root = (root.0 + 1, Some(block));
            }
        }
        let mut roots: Vec<(&Task, Node, usize, &Block)> = behind
            .into_iter()
            .filter(|(root, _)| !knot.stuck.contains(root) || knot.is_for_ever(*root))
            .filter_map(|(root, (number, block))| Some((knot.task(root)?, root, number, block?)))
            .collect();
        roots.sort_by_key(|(task, _, number, _)| (std::cmp::Reverse(*number), task.id));
        let root = |(task, root, number, block): (&Task, Node, usize, &Block)| {
            let waiting = count(number, "task waits", "tasks wait");
            let for_ever = if knot.is_for_ever(root) { ", which nobody can end" } else { "" };
            let doing = match &task.wait {
                Some(_) => format!("while it waits: {}{for_ever}", waiting_at(task)),
                None => format!("and is in {}", task_status(task)),
            };
            let text =
                format!("{waiting} for {}, which {} holds {doing}", object(block.kind, block.object), called(task));
            let kind = if knot.is_for_ever(root) { FindingKind::TaskDeadlock } else { FindingKind::LongChain };
            let threads = task.carried_by.into_iter().collect();
            let finding = self.finding(kind, Certainty::Likely, threads, text);
            Finding { objects: vec![block.object], tasks: vec![task.id], ..finding }
        };
        roots.into_iter().take(MAX_CIRCLES).map(root).collect()
    }

    /// Threads that are blocked on a lock that a task holds while it waits.
    fn blocked_by_tasks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for object in self.snapshot.objects.iter().filter(|object| !object.waiters.is_empty()) {
            let holders = self.snapshot.tasks.iter().filter(|task| {
                task.state == ThreadState::Sleep && task.holds.iter().any(|held| held.address == object.address)
            });
            let Some(holder) = holders.into_iter().next() else { continue };
            let waiters: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
            let text = format!(
                "{} blocked on the {} {}, which {} holds while it waits: {}",
                self.polling(&waiters),
                object.kind.word(),
                object.address,
                called(holder),
                waiting_at(holder),
            );
            if self.is_out_of_workers(&waiters) {
                let text = format!("{text}. No worker is left that could poll it");
                let objects = vec![object.address];
                let finding = self.finding(FindingKind::TaskDeadlock, Certainty::Likely, waiters, text);
                found.push(Finding { objects, ..finding });
            } else {
                let finding = self.finding(FindingKind::LongChain, Certainty::Likely, waiters, text);
                found.push(Finding { objects: vec![object.address], ..finding });
            }
        }
        found
    }

    /// All workers are in calls that block, and tasks that could run do not.
    fn blocked_workers(&self) -> Option<Finding> {
        let blocked = self.blocked();
        let runnable = self.snapshot.tasks.iter().filter(|task| task.state == ThreadState::Run).count();
        let workers: Vec<Lwp> = blocked.iter().filter_map(|task| task.carried_by).collect();
        if runnable == 0 || !self.is_out_of_workers(&workers) {
            return None;
        }
        let text = format!(
            "{} in a call that blocks; {runnable} {} could run and no worker is left for {}",
            self.polling(&workers),
            if runnable == 1 { "task" } else { "tasks" },
            if runnable == 1 { "it" } else { "them" },
        );
        Some(self.finding(FindingKind::BlockedWorker, Certainty::Likely, workers, text))
    }

    /// Tasks whose poll is asleep in the kernel.
    fn blocked(&self) -> Vec<&'s Task> {
        let is_asleep = |lwp: Lwp| self.threads.get(&lwp).is_some_and(|thread| thread.state == ThreadState::Sleep);
        let tasks = self.snapshot.tasks.iter();
        tasks.filter(|task| task.state == ThreadState::Active && task.carried_by.is_some_and(is_asleep)).collect()
    }

    /// Whether the threads are all that a runtime has to poll tasks with.
    fn is_out_of_workers(&self, threads: &[Lwp]) -> bool {
        let blocked = self.blocked();
        let polling: BTreeSet<Lwp> =
            blocked.iter().filter_map(|task| task.carried_by).filter(|lwp| threads.contains(lwp)).collect();
        let runtimes = &self.snapshot.task_runtimes;
        let [runtime] = runtimes.as_slice() else { return false };
        runtime.concurrency.is_some_and(|workers| polling.len() as u64 >= workers)
    }

    /// `thread 12, which polls task 3 (app::run), is`
    fn polling(&self, threads: &[Lwp]) -> String {
        let name = |lwp: &Lwp| match self.snapshot.tasks.iter().find(|task| task.carried_by == Some(*lwp)) {
            Some(task) => format!("{lwp}, which polls {},", called(task)),
            None => lwp.to_string(),
        };
        let named: Vec<String> = threads.iter().take(NAMED).map(name).collect();
        let more = if threads.len() > NAMED { " .." } else { "" };
        match threads.len() {
            1 => format!("thread {} is", named.join("")),
            _ => format!("threads {}{more} are", named.join(" ")),
        }
    }

    fn finding(&self, kind: FindingKind, certainty: Certainty, threads: Vec<Lwp>, text: String) -> Finding {
        let pid = self.snapshot.target.pid;
        let members = threads.iter().map(|lwp| Member { pid, lwp: Some(*lwp), object: None }).collect();
        let (objects, behind) = (Vec::new(), Vec::new());
        let tasks = Vec::new();
        Finding { kind, certainty, threads, objects, members, behind, tasks, seen: self.snapshot.looks.max(1), text }
    }
}

/// `task 3 (app::transfer)`
pub(super) fn called(task: &Task) -> String {
    match task.start_function.as_deref() {
        Some(name) => format!("task {} ({name})", task.id),
        None => format!("task {}", task.id),
    }
}

/// `the mutex 0x..`
fn object(kind: SyncKind, address: RemoteAddr) -> String {
    match kind {
        SyncKind::Join => "the end of a task".to_owned(),
        kind => format!("the {} {address}", kind.word()),
    }
}

/// How `who` has what another task waits for, or the same one.
fn holds(itself: bool, who: &str, runtime: &str, kind: SyncKind, held: Option<&TaskHolds>) -> String {
    // Only futures are several in one task.
    let of_futures = is_among_threads(runtime);
    let who = match itself {
        true if of_futures => "a future of the same task",
        true => "it",
        false => who,
    };
    match held {
        Some(held) if held.unpolled && itself => {
            "which was given to a future of the same task that the task does not poll now (a futurelock)".to_owned()
        }
        Some(held) if held.unpolled => format!("which was given to a future of {who} that the task does not poll now"),
        _ if kind == SyncKind::Join => who.to_owned(),
        _ if itself && !of_futures => "which it holds itself".to_owned(),
        _ => format!("which {who} holds"),
    }
}

/// `task 6 (main.run)`, or one of several.
fn others(who: &str, number: usize) -> String {
    match number {
        0 | 1 => who.to_owned(),
        2 => format!("{who}, or another one that waits as well,"),
        number => format!("{who}, or one of {} others that wait as well,", number - 1),
    }
}

/// What a task waits for, and where.
fn waiting_at(task: &Task) -> String {
    let reason = task.wait.as_ref().map_or("something", |wait| &*wait.reason);
    let wait = task.wait.as_ref();
    let descriptor = wait.and_then(|wait| wait.descriptor).map(|number| format!(" on descriptor {number}"));
    let place = place(task).map(|place| format!(", at {place}")).unwrap_or_default();
    let end = wait.and_then(|wait| wait.outside.as_ref()).map(|end| format!(": {}", end.text)).unwrap_or_default();
    format!("{reason}{}{place}{end}", descriptor.unwrap_or_default())
}

/// What a task does that does not wait.
fn task_status(task: &Task) -> String {
    match place(task) {
        Some(place) => format!("state {}, at {place}", task.status),
        None => format!("state {}", task.status),
    }
}

/// Where the innermost await or call of the program itself is.
pub(super) fn place(task: &Task) -> Option<String> {
    const FOREIGN: [&str; 15] = [
        "tokio::",
        "core::",
        "futures_",
        "runtime.",
        "sync.",
        "internal/",
        "syscall.",
        "net.",
        "net/",
        "os.",
        "io.",
        "bufio.",
        "time.",
        "crypto/",
        "database/",
    ];
    let is_own = |function: &str| !FOREIGN.iter().any(|start| function.starts_with(start));
    let frame = task.frames.iter().find(|frame| frame.function.as_deref().is_some_and(is_own))?;
    let file = frame.file.as_deref()?;
    Some(format!("{}:{}", file.rsplit('/').next().unwrap_or(file), frame.line?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_its_kind() {
        assert_eq!(object(SyncKind::Mutex, RemoteAddr(0x10)), "the mutex 0x10");
        assert_eq!(object(SyncKind::Join, RemoteAddr(0x10)), "the end of a task");
    }
}
