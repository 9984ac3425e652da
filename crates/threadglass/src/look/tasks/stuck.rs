//! Tasks that cannot go on: circles of tasks, locks that were given to who does not ask for them, workers that block.

use super::polls;
use crate::look::waits::has_not_moved;
use crate::look::{Look, facts_now};
use crate::model::{
    Certainty, Evidence, Finding, FindingKind, Member, Snapshot, SyncKind, SyncObject, Task, TaskHolds, TaskWaitsFor,
    Thread, ThreadState,
};
use crate::runtimes::TaskScope;
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap};

/// Tasks and threads of one circle.
const MAX_CIRCLE: usize = 64;
/// Circles that are told, and guards.
const MAX_CIRCLES: usize = 16;
/// How often tasks are taken away that may go on: once for each that waits for another one, at most.
const MAX_ROUNDS: usize = 256;
/// Holders of one object that are followed.
const MAX_HOLDERS: usize = 256;
/// Tasks that a sentence names.
const NAMED: usize = 4;

/// Adds what is wrong with the tasks of `snapshot`. What is found is looked at twice.
pub(in crate::look) fn add_stuck(look: &Look<'_>, snapshot: &mut Snapshot) {
    if snapshot.tasks.is_empty() {
        return;
    }
    let found = Stuck::new(snapshot).all();
    let polls = polls::long_polls(look, snapshot);
    if found.is_empty() && polls.is_empty() {
        return;
    }
    polls::wait_for(&polls, snapshot);
    let mut again = Snapshot { tasks: Vec::new(), task_runtimes: Vec::new(), gaps: Vec::new(), ..snapshot.clone() };
    look.add_tasks(&mut again, TaskScope::Held);
    let confirmed = Stuck::new(&again).all();
    let is_same = |one: &Finding, other: &Finding| {
        (one.kind, &one.text, &one.threads) == (other.kind, &other.text, &other.threads)
    };
    let named = found.iter().flat_map(|finding| finding.threads.iter());
    let blocked: BTreeSet<Lwp> = named.copied().chain(polls.iter().flat_map(|poll| poll.threads())).collect();
    let blocked: Vec<Lwp> = blocked.into_iter().collect();
    let (before, now): (_, HashMap<Lwp, LwpFacts>) = (look.facts(), facts_now(look.target, &blocked));
    let is_still =
        |lwp: &Lwp| before.get(lwp).zip(now.get(lwp)).is_some_and(|(before, now)| has_not_moved(before, now));
    let is_confirmed =
        |one: &Finding| confirmed.iter().any(|other| is_same(one, other)) && one.threads.iter().all(is_still);
    let mut still: Vec<Finding> = found.into_iter().filter(is_confirmed).collect();
    // What tasks hold is known now.
    let explained: BTreeSet<RemoteAddr> = still.iter().flat_map(|finding| finding.objects.iter().copied()).collect();
    let is_explained = |finding: &Finding| finding.objects.first().is_some_and(|object| explained.contains(object));
    snapshot.findings.retain(|finding| finding.kind != FindingKind::HolderUnknown || !is_explained(finding));
    // A worker of a circle is blocked because of that.
    let told: BTreeSet<Lwp> = still.iter().flat_map(|finding| finding.threads.iter().copied()).collect();
    let stuck = Stuck::new(snapshot);
    let long = polls.iter().filter(|poll| !poll.threads().any(|lwp| told.contains(&lwp)));
    let long = long.filter_map(|poll| poll.confirmed(&stuck, &again, &is_still));
    let at = still.iter().position(|finding| finding.kind == FindingKind::GuardAcrossAwait).unwrap_or(still.len());
    let long: Vec<Finding> = long.collect();
    still.splice(at..at, long);
    // Guards are told last: they need not be in anybody's way.
    let (guards, wrong): (Vec<_>, Vec<_>) =
        still.into_iter().partition(|finding| finding.kind == FindingKind::GuardAcrossAwait);
    snapshot.findings.splice(0..0, wrong);
    snapshot.findings.extend(guards);
}

/// The tasks and threads of a look, by what leads to them.
pub(super) struct Stuck<'s> {
    snapshot: &'s Snapshot,
    /// Ids are not unique where several copies of a runtime are in one process.
    tasks: HashMap<u64, Vec<&'s Task>>,
    carried: HashMap<Lwp, &'s Task>,
    threads: HashMap<Lwp, &'s Thread>,
    /// The object that each thread waits for.
    waits: HashMap<Lwp, &'s SyncObject>,
    /// Tasks that hold a lock that threads block on while they wait.
    keepers: HashMap<RemoteAddr, Vec<&'s Task>>,
    /// Tasks that wait for what several tasks hold, of which none can go on.
    hopeless: BTreeSet<RemoteAddr>,
}

/// What can be in a circle.
#[derive(Clone, Copy)]
enum Node<'s> {
    Task(&'s Task),
    Thread(Lwp),
}

impl Node<'_> {
    fn key(&self) -> (u64, u64) {
        match self {
            Node::Task(task) => (0, task.address.0),
            Node::Thread(lwp) => (1, u64::from(lwp.0.unsigned_abs())),
        }
    }
}

impl<'s> Stuck<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        let (mut tasks, mut carried): (HashMap<u64, Vec<&Task>>, HashMap<_, _>) = Default::default();
        let mut keepers: HashMap<RemoteAddr, Vec<&Task>> = HashMap::new();
        for task in &snapshot.tasks {
            tasks.entry(task.id).or_default().push(task);
            if let Some(lwp) = task.carried_by.filter(|_| task.state == ThreadState::Active) {
                carried.insert(lwp, task);
            }
            for held in task.holds.iter().filter(|held| held.blocks_threads && task.state == ThreadState::Sleep) {
                keepers.entry(held.address).or_default().push(task);
            }
        }
        let waits = snapshot.objects.iter().flat_map(|object| object.waiters.iter().map(move |it| (it.lwp, object)));
        let hopeless = BTreeSet::new();
        let mut stuck = Self { snapshot, tasks, carried, threads, waits: waits.collect(), keepers, hopeless };
        stuck.hopeless = stuck.hopeless();
        stuck
    }

    /// Tasks of which none can go on before another one of them does: what is left when all are taken away that may go
    /// on. A semaphore needs one holder that goes on, a lock all.
    fn hopeless(&self) -> BTreeSet<RemoteAddr> {
        let waits = |task: &'s Task| Some((task, only_object(task)?.kind, self.holders(task)));
        let waiting: Vec<(&Task, SyncKind, Vec<&Task>)> = self.snapshot.tasks.iter().filter_map(waits).collect();
        let mut left: BTreeSet<RemoteAddr> = waiting.iter().map(|(task, ..)| task.address).collect();
        for _ in 0..MAX_ROUNDS {
            let is_stuck = |(task, kind, holders): &&(&Task, SyncKind, Vec<&Task>)| {
                let mut stuck = holders.iter().map(|holder| left.contains(&holder.address));
                let is_stuck = if *kind == SyncKind::Semaphore { stuck.all(|it| it) } else { stuck.any(|it| it) };
                left.contains(&task.address) && !holders.is_empty() && is_stuck
            };
            let still: BTreeSet<RemoteAddr> = waiting.iter().filter(is_stuck).map(|(task, ..)| task.address).collect();
            if still.len() == left.len() {
                return still;
            }
            left = still;
        }
        // A chain that is longer than any of a real program.
        BTreeSet::new()
    }

    fn all(&self) -> Vec<Finding> {
        let mut found = self.circles();
        let told = |found: &[Finding]| -> BTreeSet<RemoteAddr> {
            found.iter().flat_map(|finding| finding.objects.iter().copied()).collect()
        };
        let in_circles = told(&found);
        found.extend(self.blocked_by_tasks().into_iter().filter(|it| !in_circles.contains(&it.objects[0])));
        found.extend(self.guards(&told(&found)));
        found
    }

    /// Circles in which each waits for what the next one holds, with a task in each.
    fn circles(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut done: BTreeSet<(u64, u64)> = BTreeSet::new();
        for task in &self.snapshot.tasks {
            let mut path: Vec<Node<'s>> = Vec::new();
            let mut at = Node::Task(task);
            // Each waits for one: there is only one way on.
            while path.len() < MAX_CIRCLE && !done.contains(&at.key()) {
                if let Some(start) = path.iter().position(|other| other.key() == at.key()) {
                    let circle = &path[start..];
                    let has_waiting_task = |node: &Node<'_>| matches!(node, Node::Task(task) if task.wait.is_some());
                    if found.len() < MAX_CIRCLES && circle.iter().any(has_waiting_task) {
                        found.push(self.circle(circle));
                    }
                    break;
                }
                path.push(at);
                let Some(next) = self.next(at) else { break };
                at = next;
            }
            done.extend(path.iter().map(Node::key));
        }
        found
    }

    /// Who must go on before `node` can.
    fn next(&self, node: Node<'s>) -> Option<Node<'s>> {
        match node {
            Node::Task(task) if task.state == ThreadState::Active => {
                let lwp = task.carried_by?;
                self.waits.get(&lwp).map(|_| Node::Thread(lwp))
            }
            Node::Task(task) => self.holder(task).map(Node::Task),
            Node::Thread(lwp) => {
                let object = self.waits.get(&lwp)?;
                if let Some(keepers) = self.keepers.get(&object.address) {
                    let [keeper] = keepers.as_slice() else { return None };
                    return Some(Node::Task(keeper));
                }
                let [holder] = object.holders.as_slice() else { return None };
                let holder = holder.lwp.filter(|_| holder.pid.is_none())?;
                self.waits.get(&holder).map(|_| Node::Thread(holder))
            }
        }
    }

    /// The task that must go on before `task` can: the only one, or one of several of which none can.
    fn holder(&self, task: &Task) -> Option<&'s Task> {
        match self.holders(task).as_slice() {
            [one] => Some(*one),
            several => {
                let mut stuck = several.iter().filter(|holder| self.hopeless.contains(&holder.address));
                stuck.next().filter(|_| self.hopeless.contains(&task.address)).copied()
            }
        }
    }

    /// The tasks that hold what `task` waits for. Ids alone may be those of several tasks.
    fn holders(&self, task: &Task) -> Vec<&'s Task> {
        let Some(wanted) = only_object(task) else { return Vec::new() };
        let is_it = |other: &&&Task| match wanted.kind {
            SyncKind::Join => other.address == wanted.address,
            _ => other.holds.iter().any(|held| held.address == wanted.address),
        };
        let all = wanted.held_by.iter().take(MAX_HOLDERS).filter_map(|id| self.tasks.get(id));
        all.flat_map(|tasks| tasks.iter().filter(is_it)).copied().collect()
    }

    fn circle(&self, circle: &[Node<'s>]) -> Finding {
        let mut certainty = Certainty::Certain;
        let (mut steps, mut objects, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for (index, node) in circle.iter().enumerate() {
            let next = circle[(index + 1) % circle.len()];
            match node {
                // Its thread comes next, and says the rest.
                Node::Task(task) if task.state == ThreadState::Active => {}
                Node::Task(task) => {
                    let Some(wanted) = only_object(task) else { continue };
                    let Node::Task(holder) = next else { continue };
                    let held = holder.holds.iter().find(|held| held.address == wanted.address);
                    // Of a semaphore somebody who is not seen may have the rest.
                    let is_sure = wanted.kind != SyncKind::Semaphore
                        && held.is_none_or(|held| held.evidence < Evidence::Inferred);
                    if !is_sure {
                        certainty = Certainty::Likely;
                    }
                    let place = place(task).map(|place| format!(" at {place}")).unwrap_or_default();
                    let who = match wanted.held_by.len() {
                        2.. => {
                            format!("which {} tasks hold that all wait, as {}", wanted.held_by.len(), called(holder))
                        }
                        _ => holds(task, holder, wanted, held),
                    };
                    steps.push(format!("{} awaits {}{place}, {who}", called(task), object(wanted)));
                    objects.push(wanted.address);
                }
                Node::Thread(lwp) => {
                    let Some(object) = self.waits.get(lwp) else { continue };
                    let who = match next {
                        Node::Task(task) => format!("{} holds while it waits", called(task)),
                        Node::Thread(other) => {
                            let is_inferred = object.holders.iter().any(|holder| holder.evidence >= Evidence::Inferred);
                            certainty = if is_inferred { Certainty::Likely } else { certainty };
                            format!("{} holds", self.polling_name(other))
                        }
                    };
                    let blocked = format!("blocked on the {} {}", object.kind.word(), object.address);
                    steps.push(format!("{} {blocked}, which {who}", self.polling(&[*lwp])));
                    objects.push(object.address);
                    threads.push(*lwp);
                }
            }
        }
        let tasks = circle.iter().filter(|node| matches!(node, Node::Task(_))).count();
        let text = match steps.as_slice() {
            [one] => one.clone(),
            _ if threads.is_empty() => {
                format!("{tasks} tasks of {} wait for each other: {}", self.runtime(), steps.join("; "))
            }
            _ => format!("tasks of {} and threads wait for each other: {}", self.runtime(), steps.join("; ")),
        };
        Finding { objects, ..self.finding(FindingKind::TaskDeadlock, certainty, threads, text) }
    }

    fn runtime(&self) -> &'static str {
        self.snapshot.tasks.first().map_or("a runtime", |task| task.runtime)
    }

    /// Threads that are blocked on a lock that a task holds while it waits.
    fn blocked_by_tasks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for object in self.snapshot.objects.iter().filter(|object| !object.waiters.is_empty()) {
            let Some(holder) = self.keepers.get(&object.address).and_then(|keepers| keepers.first()) else { continue };
            let waiters: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
            let text = format!(
                "{} blocked on the {} {}, which {} holds while it waits: {}",
                self.polling(&waiters),
                object.kind.word(),
                object.address,
                called(holder),
                waiting(holder),
            );
            let (kind, text) = match self.is_out_of_workers(holder, &waiters) {
                true => (FindingKind::TaskDeadlock, format!("{text}. No worker is left that could poll it")),
                false => (FindingKind::LongChain, text),
            };
            let finding = self.finding(kind, Certainty::Likely, waiters, text);
            found.push(Finding { objects: vec![object.address], ..finding });
        }
        found
    }

    /// Tasks that hold, while they wait, a lock that threads block on; each place of the program once.
    fn guards(&self, told: &BTreeSet<RemoteAddr>) -> Vec<Finding> {
        let mut found: Vec<(String, Finding, usize)> = Vec::new();
        for task in &self.snapshot.tasks {
            let is_guard = |held: &&TaskHolds| held.blocks_threads && !told.contains(&held.address);
            let Some(held) = task.holds.iter().find(is_guard).filter(|_| task.state == ThreadState::Sleep) else {
                continue;
            };
            let key = format!("{:?} {:?}", task.start_function, place(task));
            if let Some((.., count)) = found.iter_mut().find(|(other, ..)| *other == key) {
                *count += 1;
            } else if found.len() < MAX_CIRCLES {
                let text = format!(
                    "{} holds the {} {} while it waits ({}): a thread that wants the lock blocks, and polls nothing",
                    called(task),
                    held.kind.word(),
                    held.address,
                    waiting(task)
                );
                let finding = self.finding(FindingKind::GuardAcrossAwait, Certainty::Certain, Vec::new(), text);
                found.push((key, Finding { objects: vec![held.address], ..finding }, 1));
            }
        }
        let more = |(_, finding, count): (String, Finding, usize)| match count {
            1 => finding,
            count => Finding { text: format!("{}; so do {} more tasks there", finding.text, count - 1), ..finding },
        };
        found.into_iter().map(more).collect()
    }

    /// Whether nobody can poll `task`: its threads are all among `threads`, which block.
    fn is_out_of_workers(&self, task: &Task, threads: &[Lwp]) -> bool {
        let Some(workers) = self.workers_of(task.scheduler) else { return false };
        let is_its = |lwp: &&Lwp| {
            let polled = self.carried.get(lwp).filter(|polled| polled.scheduler == task.scheduler);
            polled.is_some() && task.scheduler.is_some()
        };
        threads.iter().filter(is_its).count() as u64 >= workers
    }

    /// How many threads poll the tasks of a scheduler.
    pub(super) fn workers_of(&self, scheduler: Option<RemoteAddr>) -> Option<u64> {
        let all = self.snapshot.task_runtimes.iter().flat_map(|runtime| &runtime.schedulers);
        all.filter(|it| Some(it.address) == scheduler).find_map(|it| it.concurrency)
    }

    /// `thread 12, which polls task 3 (app::run), is`
    pub(super) fn polling(&self, threads: &[Lwp]) -> String {
        let named: Vec<String> = threads.iter().take(NAMED).map(|lwp| self.polling_name(*lwp)).collect();
        let more = if threads.len() > NAMED { " .." } else { "" };
        // A clause about the task ends with a comma.
        let end = |name: &str| if name.ends_with(')') || name.contains(", which") { "," } else { "" };
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
        Finding { kind, certainty, threads, objects, members, behind, seen: self.snapshot.looks.max(1), text }
    }
}

/// The object that a task waits for, if it waits for nothing else and has no time limit.
fn only_object(task: &Task) -> Option<&TaskWaitsFor> {
    let wait = task.wait.as_ref().filter(|_| task.state == ThreadState::Sleep)?;
    let [wanted] = wait.objects.as_slice() else { return None };
    let is_alone = !wait.timed && wait.descriptor.is_none() && !wait.reason.contains(" or ");
    is_alone.then_some(wanted)
}

/// `task 3 (app::transfer)`
pub(super) fn called(task: &Task) -> String {
    let what = match task.bound_to.filter(|_| task.id == 0) {
        Some(lwp) => format!("the future of block_on in thread {lwp}"),
        None => format!("task {}", task.id),
    };
    match task.start_function.as_deref() {
        Some(name) => format!("{what} ({name})"),
        None => what,
    }
}

/// `a mutex 0x..`
fn object(wanted: &TaskWaitsFor) -> String {
    match wanted.kind {
        SyncKind::Join => "the end of a task".to_owned(),
        kind => format!("the {} {}", kind.word(), wanted.address),
    }
}

fn holds(task: &Task, holder: &Task, wanted: &TaskWaitsFor, held: Option<&TaskHolds>) -> String {
    let who = if task.address == holder.address { "a future of the same task".to_owned() } else { called(holder) };
    match held {
        Some(held) if held.unpolled && task.address == holder.address => {
            "which was given to a future of the same task that the task does not poll now (a futurelock)".to_owned()
        }
        Some(held) if held.unpolled => format!("which was given to a future of {who} that the task does not poll now"),
        _ if wanted.kind == SyncKind::Join => who,
        _ => format!("which {who} holds"),
    }
}

/// What a task waits for, and where.
fn waiting(task: &Task) -> String {
    let reason = task.wait.as_ref().map_or("something", |wait| &*wait.reason);
    match place(task) {
        Some(place) => format!("{reason}, at {place}"),
        None => reason.to_owned(),
    }
}

/// Where the innermost await of the program itself is.
fn place(task: &Task) -> Option<String> {
    let is_own = |function: &str| !["tokio::", "core::", "futures_"].iter().any(|start| function.starts_with(start));
    let frame = task.frames.iter().find(|frame| frame.function.as_deref().is_some_and(is_own))?;
    let file = frame.file.as_deref()?;
    Some(format!("{}:{}", file.rsplit('/').next().unwrap_or(file), frame.line?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_its_kind() {
        let wanted = |kind| TaskWaitsFor {
            address: RemoteAddr(0x10),
            kind,
            side: None,
            channel_use: None,
            held_by: Vec::new(),
            evidence: Evidence::Derived,
        };
        assert_eq!(object(&wanted(SyncKind::Mutex)), "the mutex 0x10");
        assert_eq!(object(&wanted(SyncKind::Join)), "the end of a task");
    }
}
