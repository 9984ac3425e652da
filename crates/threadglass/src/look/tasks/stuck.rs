//! Tasks that cannot go on: circles of tasks, locks that were given to who does not ask for them, workers that block.

use super::knot::{Block, Knot, Node, is_blocked_poll};
use super::own::is_of_library;
use super::{guards, polls, rest};
use crate::look::waits::{count, has_not_moved};
use crate::look::{Look, facts_now};
use crate::model::{
    Certainty, ChannelUse, Evidence, Finding, FindingKind, Frame, Member, Side, Snapshot, SyncKind, Task, TaskHolds,
    TaskWait, TaskWaitsFor, Thread, ThreadState,
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
    if snapshot.tasks.is_empty() {
        return;
    }
    doubt_threads(snapshot);
    let found = Stuck::new(snapshot).all();
    let polls = polls::long_polls(look, snapshot);
    if found.is_empty() && polls.is_empty() {
        return;
    }
    polls::wait_for(&polls, snapshot);
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
    let places = |snapshot: &Snapshot| -> BTreeSet<_> {
        snapshot.tasks.iter().map(|task| (task.id, task.address, task.pc, task.sp)).collect()
    };
    let (stood, stands) = (places(snapshot), places(&again));
    let both: BTreeSet<u64> = stood.intersection(&stands).map(|(id, ..)| *id).collect();
    let has_stayed = |task: &u64| both.contains(task);
    let named = found.iter().flat_map(|finding| finding.threads.iter().copied());
    let blocked: BTreeSet<Lwp> = named.chain(polls.iter().flat_map(|poll| poll.threads())).collect();
    let blocked: Vec<Lwp> = blocked.into_iter().collect();
    let (before, now): (_, HashMap<Lwp, LwpFacts>) = (look.facts(), facts_now(look.target, &blocked));
    let is_still =
        |lwp: &Lwp| before.get(lwp).zip(now.get(lwp)).is_some_and(|(before, now)| has_not_moved(before, now));
    let is_confirmed = |one: &Finding| {
        let is_there = confirmed.iter().any(|other| is_same(one, other));
        is_there && one.threads.iter().all(is_still) && one.tasks.iter().all(has_stayed)
    };
    let mut still: Vec<Finding> = found.into_iter().filter(is_confirmed).collect();
    // What tasks hold is known now.
    let circles = still.iter().filter(|finding| finding.kind == FindingKind::TaskDeadlock);
    let in_circles: BTreeSet<RemoteAddr> = circles.flat_map(|finding| finding.objects.iter().copied()).collect();
    let explained: BTreeSet<RemoteAddr> = still.iter().flat_map(|finding| finding.objects.iter().copied()).collect();
    let is_explained = |finding: &Finding| finding.objects.first().is_some_and(|object| explained.contains(object));
    let has_circle = still.iter().any(|finding| finding.kind == FindingKind::TaskDeadlock);
    let rests: BTreeSet<Lwp> =
        snapshot.threads.iter().filter(|thread| rest::rests(thread)).filter_map(|thread| thread.lwp).collect();
    // Nobody is left because of that.
    let follows = |finding: &Finding| {
        is_explained(finding) || has_circle && finding.threads.iter().all(|lwp| rests.contains(lwp))
    };
    // Of a thread that runs the tasks of a circle, in its own words.
    let is_part = |finding: &Finding| {
        let objects = &finding.objects;
        finding.tasks.is_empty() && !objects.is_empty() && objects.iter().all(|object| in_circles.contains(object))
    };
    snapshot.findings.retain(|finding| match finding.kind {
        FindingKind::HolderUnknown => !is_explained(finding),
        FindingKind::LongChain => !is_part(finding),
        FindingKind::NobodyLeft | FindingKind::CondWithoutSignaller => !follows(finding),
        _ => true,
    });
    // The same circle, as its threads show it.
    let is_told = |finding: &Finding| {
        let is_part = |told: &Finding| finding.threads.iter().all(|lwp| told.threads.contains(lwp));
        finding.kind.is_hang()
            && !finding.threads.is_empty()
            && still.iter().any(|told| !told.tasks.is_empty() && is_part(told))
    };
    snapshot.findings.retain(|finding| !is_told(finding));
    // A worker that is part of a circle is blocked because of that.
    let told: BTreeSet<Lwp> = still.iter().flat_map(|finding| finding.threads.iter().copied()).collect();
    let stuck = Stuck::new(snapshot);
    let long = polls.iter().filter(|poll| !poll.threads().any(|lwp| told.contains(&lwp)));
    let long: Vec<Finding> = long.filter_map(|poll| poll.confirmed(&stuck, &again, &is_still)).collect();
    still.extend(long);
    // Guards are told last: they need not be in anybody's way.
    let (guards, wrong): (Vec<_>, Vec<_>) =
        still.into_iter().partition(|finding| finding.kind == FindingKind::GuardAcrossAwait);
    snapshot.findings.splice(0..0, wrong);
    snapshot.findings.extend(guards);
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
pub(super) struct Stuck<'s> {
    pub(super) snapshot: &'s Snapshot,
    threads: HashMap<Lwp, &'s Thread>,
    /// The task that each thread runs.
    carried: HashMap<Lwp, &'s Task>,
}

impl<'s> Stuck<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        let carried = snapshot.tasks.iter().filter_map(|task| Some((task.carried_by?, task))).collect();
        Self { snapshot, threads, carried }
    }

    fn all(&self) -> Vec<Finding> {
        let knot = Knot::new(self.snapshot);
        let mut found = self.circles(&knot);
        found.extend(self.roots(&knot));
        let objects = |found: &[Finding]| -> BTreeSet<RemoteAddr> {
            found.iter().flat_map(|finding| finding.objects.iter().copied()).collect()
        };
        let told = objects(&found);
        found.extend(self.blocked_by_tasks(&knot).into_iter().filter(|it| !told.contains(&it.objects[0])));
        let told = objects(&found);
        found.extend(guards::across_awaits(self, &told));
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
                SyncKind::Channel => block.channel_use == Some(ChannelUse::Send) || wants_answer(knot.task(*node)),
                kind => kind != SyncKind::Cond,
            };
            objects.push(block.object);
            steps.push(text);
        }
        let tasks: Vec<&Task> = circle.iter().filter_map(|node| knot.task(*node)).collect();
        let is_of_futures = tasks.first().is_some_and(|task| is_among_threads(task.runtime));
        if is_of_futures && !self.is_quiet(&tasks) && !has_no_guards(knot, circle) {
            certainty = certainty.min(Certainty::Likely);
        }
        // Idle tasks that hand each other work look like a circle of receives. One that sends has something to hand over.
        let first = tasks.first().filter(|_| is_at_work)?;
        // Threads that block each other are told as threads, whatever they run.
        if tasks.iter().all(|task| is_blocked_poll(task)) {
            return None;
        }
        let text = match steps.as_slice() {
            [one] => one.clone(),
            _ if circle.iter().any(|node| self.blocked_thread(knot, *node).is_some()) => {
                format!("tasks of {} and threads wait for each other: {}", first.runtime, steps.join("; "))
            }
            _ => format!("{} tasks of {} wait for each other: {}", tasks.len(), first.runtime, steps.join("; ")),
        };
        let threads = circle.iter().filter_map(|node| knot.thread(*node)).collect();
        let finding = self.finding(FindingKind::TaskDeadlock, certainty, threads, text);
        Some(Finding { objects, tasks: tasks.iter().map(|task| task.id).collect(), ..finding })
    }

    /// Whether nothing but `circle` is at work. A task may have dropped a guard by hand, and still have its bytes: then the
    /// lock is with somebody who works.
    fn is_quiet(&self, circle: &[&Task]) -> bool {
        let is_still = |thread: &Thread| thread.state == ThreadState::Sleep;
        let is_part = |task: &Task| circle.iter().any(|other| std::ptr::eq(*other, task));
        let waits =
            |task: &Task| task.state == ThreadState::Sleep || task.state == ThreadState::Active && is_part(task);
        self.snapshot.threads.iter().all(is_still) && self.snapshot.tasks.iter().all(waits)
    }

    /// The thread that a node is, or that is blocked in a poll of a task.
    fn blocked_thread(&self, knot: &Knot<'_>, node: Node) -> Option<Lwp> {
        match knot.task(node) {
            Some(task) => task.carried_by.filter(|_| is_blocked_poll(task)),
            None => knot.thread(node),
        }
    }

    /// That `node` waits for `next`, and how sure that is.
    fn step(&self, knot: &Knot<'_>, node: Node, next: Node, block: &Block) -> (Certainty, String) {
        if let Some(lwp) = self.blocked_thread(knot, node) {
            if block.kind == SyncKind::Join {
                let ends = knot.task(next).map_or_else(|| "another".to_owned(), called);
                return (Certainty::Certain, format!("{} blocked until {ends} ends", self.polling(&[lwp])));
            }
            let holder = match (self.blocked_thread(knot, next), knot.task(next)) {
                (None, Some(task)) => format!("{} holds while it waits", called(task)),
                (Some(lwp), _) => format!("{} holds", self.polling_name(lwp)),
                (None, None) => "a thread holds".to_owned(),
            };
            let certain = if knot.is_guessed(block.object) { Certainty::Likely } else { Certainty::Certain };
            let text =
                format!("{} blocked on {}, which {holder}", self.polling(&[lwp]), object(block.kind, block.object));
            return (certain, text);
        }
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
            (SyncKind::Channel, how) if knot.task(node).is_some_and(|task| is_among_threads(task.runtime)) => {
                let end = if how == Some(ChannelUse::Send) { "receiver" } else { "sender" };
                let text = match (itself, block.by.len()) {
                    (true, 1) => format!("whose only {end} it has itself"),
                    (_, 1) => format!("whose only {end} {} has", who(next)),
                    (_, all) => format!("whose {end}s {all} tasks have that all wait, as {}", who(next)),
                };
                (Certainty::Likely, text)
            }
            (SyncKind::Channel, how) => {
                let act = if how == Some(ChannelUse::Send) { "receive" } else { "send" };
                let only = if itself { "the task itself".to_owned() } else { others(&who(next), block.by.len()) };
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
            (SyncKind::Semaphore, _) if block.by.len() > 1 => {
                let all = block.by.len();
                (Certainty::Likely, format!("which {all} tasks hold that all wait, as {}", who(next)))
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
        // Waiting for the end of a task is no reason to look at that one; of locks that threads block on more is told.
        let is_lock = |block: &Block| {
            let is_other =
                matches!(block.kind, SyncKind::Channel | SyncKind::Cond | SyncKind::WaitGroup | SyncKind::Join);
            !is_other && knot.keepers(block.object).is_empty()
        };
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
                None => format!("and is in {}{}", task_status(task), self.call_of(task)),
            };
            let is_unpolled = |held: &&TaskHolds| held.address == block.object && held.unpolled;
            let has = match task.holds.iter().find(is_unpolled) {
                Some(_) => format!("which was given to a future of {} that the task does not poll,", called(task)),
                None => format!("which {} holds", called(task)),
            };
            let text = format!("{waiting} for {}, {has} {doing}", object(block.kind, block.object));
            let kind = if knot.is_for_ever(root) { FindingKind::TaskDeadlock } else { FindingKind::LongChain };
            let threads = task.carried_by.into_iter().collect();
            let finding = self.finding(kind, Certainty::Likely, threads, text);
            Finding { objects: vec![block.object], tasks: vec![task.id], ..finding }
        };
        roots.into_iter().take(MAX_CIRCLES).map(root).collect()
    }

    /// The system call that a task is in: `: waitid, the child is cat (pid 12)`.
    fn call_of(&self, task: &Task) -> String {
        let Some(thread) = task.carried_by.and_then(|lwp| self.thread(lwp)) else { return String::new() };
        let Some(call) = thread.syscall.as_ref().filter(|_| thread.state == ThreadState::Sleep) else {
            return String::new();
        };
        let end = thread.waits_outside.as_ref().map(|end| format!(", {}", end.text)).unwrap_or_default();
        format!(": {}{end}", call.name)
    }

    /// Threads that are blocked on a lock that a task holds while it waits.
    fn blocked_by_tasks(&self, knot: &Knot<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        for object in self.snapshot.objects.iter().filter(|object| !object.waiters.is_empty()) {
            let Some(holder) = knot.keepers(object.address).iter().find_map(|node| knot.task(*node)) else { continue };
            let waiters: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
            let text = format!(
                "{} blocked on the {} {}, which {} holds while it waits: {}",
                self.polling(&waiters),
                object.kind.word(),
                object.address,
                called(holder),
                waiting_at(holder),
            );
            let (kind, text) = match self.is_out_of_workers(holder, &waiters) {
                true => (FindingKind::TaskDeadlock, format!("{text}. No worker is left that could poll it")),
                false => (FindingKind::LongChain, text),
            };
            let finding = self.finding(kind, Certainty::Likely, waiters, text);
            found.push(Finding { objects: vec![object.address], tasks: vec![holder.id], ..finding });
        }
        found
    }

    /// Whether nobody can poll `task`: the threads that could are all among `threads`, which block.
    fn is_out_of_workers(&self, task: &Task, threads: &[Lwp]) -> bool {
        let Some(workers) = self.workers_of(task.scheduler) else { return false };
        let is_its = |lwp: &&Lwp| self.carried.get(lwp).is_some_and(|polled| polled.scheduler == task.scheduler);
        threads.iter().filter(is_its).count() as u64 >= workers
    }

    /// How many threads poll the tasks of a scheduler.
    pub(super) fn workers_of(&self, scheduler: Option<RemoteAddr>) -> Option<u64> {
        let address = scheduler?;
        let all = self.snapshot.task_runtimes.iter().flat_map(|runtime| &runtime.schedulers);
        all.filter(|it| it.address == address).find_map(|it| it.concurrency)
    }

    /// `thread 12, which polls task 3 (app::run), is`
    pub(super) fn polling(&self, threads: &[Lwp]) -> String {
        let named: Vec<String> = threads.iter().take(NAMED).map(|lwp| self.polling_name(*lwp)).collect();
        let more = if threads.len() > NAMED { " .." } else { "" };
        // A clause about the task ends with a comma.
        let end = |name: &str| if name.contains(", which") { "," } else { "" };
        match named.as_slice() {
            [one] if threads.len() == 1 => format!("{one}{} is", end(one)),
            _ => format!("{}{more} are", named.join("; ")),
        }
    }

    fn polling_name(&self, lwp: Lwp) -> String {
        match self.carried.get(&lwp) {
            Some(task) => format!("thread {lwp}, which polls {}", called(task)),
            None => format!("thread {lwp}"),
        }
    }

    pub(super) fn thread(&self, lwp: Lwp) -> Option<&'s Thread> {
        self.threads.get(&lwp).copied()
    }

    pub(super) fn finding(&self, kind: FindingKind, certainty: Certainty, threads: Vec<Lwp>, text: String) -> Finding {
        let pid = self.snapshot.target.pid;
        let members = threads.iter().map(|lwp| Member { pid, lwp: Some(*lwp), object: None }).collect();
        let (objects, behind) = (Vec::new(), Vec::new());
        let tasks = Vec::new();
        Finding { kind, certainty, threads, objects, members, behind, tasks, seen: self.snapshot.looks.max(1), text }
    }
}

/// Whether the circle is one of ends of tasks, and of locks that were given to futures.
fn has_no_guards(knot: &Knot<'_>, circle: &[Node]) -> bool {
    circle.iter().all(|node| {
        let next = knot.next(*node);
        next.is_some_and(|(next, block)| {
            let is_unpolled = |held: &TaskHolds| held.address == block.object && held.unpolled;
            block.kind == SyncKind::Join || knot.task(next).is_some_and(|task| task.holds.iter().any(is_unpolled))
        })
    })
}

/// Whether a task waits for the one value that a channel is made for.
fn wants_answer(task: Option<&Task>) -> bool {
    task.and_then(|task| task.wait.as_ref()).is_some_and(|wait| wait.reason.starts_with("oneshot"))
}

/// `task 3 (app::transfer)`
pub fn called(task: &Task) -> String {
    let what = match task.bound_to.filter(|_| task.id == 0) {
        Some(lwp) => format!("the future of block_on in thread {lwp}"),
        None => format!("task {}", task.id),
    };
    match task.start_function.as_deref() {
        // What the program's own first function is called from.
        Some("runtime.main") => format!("{what} (main.main)"),
        Some(name) => format!("{what} ({name})"),
        None => what,
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
pub(super) fn waiting_at(task: &Task) -> String {
    let reason = task.wait.as_ref().map_or("something", |wait| &*wait.reason);
    let wait = task.wait.as_ref();
    let descriptor = wait.and_then(|wait| wait.descriptor).map(|number| format!(" on descriptor {number}"));
    let place = place(task).map(|place| format!(", at {place}")).unwrap_or_default();
    let end = wait.and_then(|wait| wait.outside.as_ref()).map(|end| format!(": {}", end.text)).unwrap_or_default();
    let unheld = wait
        .and_then(unheld_lock)
        .filter(|_| !is_among_threads(task.runtime))
        .map(|lock| format!(", for {} that no task is seen to hold", object(lock.kind, lock.address)));
    format!("{reason}{}{place}{end}{}", descriptor.unwrap_or_default(), unheld.unwrap_or_default())
}

/// The lock that a wait is for, if no holder of it is known.
fn unheld_lock(wait: &TaskWait) -> Option<&TaskWaitsFor> {
    let [lock] = wait.objects.as_slice() else { return None };
    let is_lock = matches!(lock.kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once);
    (is_lock && lock.held_by.is_empty()).then_some(lock)
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
    place_in(&task.frames)
}

/// The same in `frames`.
pub(super) fn place_in(frames: &[Frame]) -> Option<String> {
    let is_own = |function: &str| !is_of_library(function);
    let frame = frames.iter().find(|frame| frame.function.as_deref().is_some_and(is_own))?;
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
