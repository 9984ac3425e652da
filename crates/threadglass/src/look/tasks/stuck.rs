//! Tasks that cannot go on: circles of tasks, locks that were given to who does not ask for them, workers that block.

use crate::look::waits::has_not_moved;
use crate::look::{Look, facts_now};
use crate::model::{
    Certainty, Evidence, Finding, FindingKind, Member, Snapshot, SyncKind, Task, TaskHolds, TaskWaitsFor, Thread,
    ThreadState,
};
use crate::runtimes::TaskScope;
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap};

/// Tasks of one circle.
const MAX_CIRCLE: usize = 64;
/// Circles that are told.
const MAX_CIRCLES: usize = 16;
/// Tasks that a sentence names.
const NAMED: usize = 4;

/// Adds what is wrong with the tasks of `snapshot`. What is found is looked at twice.
pub(in crate::look) fn add_stuck(look: &Look<'_>, snapshot: &mut Snapshot) {
    let found = Stuck::new(snapshot).all();
    if found.is_empty() {
        return;
    }
    let mut again = Snapshot { tasks: Vec::new(), task_runtimes: Vec::new(), gaps: Vec::new(), ..snapshot.clone() };
    look.add_tasks(&mut again, TaskScope::Held);
    let confirmed = Stuck::new(&again).all();
    let is_same = |one: &Finding, other: &Finding| {
        (one.kind, &one.text, &one.threads) == (other.kind, &other.text, &other.threads)
    };
    let blocked: Vec<Lwp> = found.iter().flat_map(|finding| finding.threads.iter().copied()).collect();
    let (before, now): (_, HashMap<Lwp, LwpFacts>) = (look.facts(), facts_now(look.target, &blocked));
    let is_still =
        |lwp: &Lwp| before.get(lwp).zip(now.get(lwp)).is_some_and(|(before, now)| has_not_moved(before, now));
    let is_confirmed =
        |one: &Finding| confirmed.iter().any(|other| is_same(one, other)) && one.threads.iter().all(is_still);
    let still: Vec<Finding> = found.into_iter().filter(is_confirmed).collect();
    // What tasks hold is known now.
    let explained: BTreeSet<RemoteAddr> = still.iter().flat_map(|finding| finding.objects.iter().copied()).collect();
    let is_explained = |finding: &Finding| finding.objects.first().is_some_and(|object| explained.contains(object));
    snapshot.findings.retain(|finding| finding.kind != FindingKind::HolderUnknown || !is_explained(finding));
    snapshot.findings.splice(0..0, still);
}

/// The tasks and threads of a look, by what leads to them.
struct Stuck<'s> {
    snapshot: &'s Snapshot,
    tasks: HashMap<u64, &'s Task>,
    threads: HashMap<Lwp, &'s Thread>,
}

impl<'s> Stuck<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let tasks = snapshot.tasks.iter().map(|task| (task.id, task)).collect();
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        Self { snapshot, tasks, threads }
    }

    fn all(&self) -> Vec<Finding> {
        let mut found = self.circles();
        found.extend(self.blocked_by_tasks());
        found.extend(self.blocked_workers());
        found
    }

    /// Circles in which each task waits for what the next one holds.
    fn circles(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut done: BTreeSet<u64> = BTreeSet::new();
        for task in &self.snapshot.tasks {
            let mut path: Vec<&Task> = Vec::new();
            let mut at = task;
            // Each task waits for one: there is only one way on.
            while path.len() < MAX_CIRCLE && !done.contains(&at.id) {
                if let Some(start) = path.iter().position(|other| other.id == at.id) {
                    if found.len() < MAX_CIRCLES {
                        found.push(self.circle(&path[start..]));
                    }
                    break;
                }
                path.push(at);
                let Some(next) = self.holder(at) else { break };
                at = next;
            }
            done.extend(path.iter().map(|task| task.id));
        }
        found
    }

    /// The one task that must go on before `task` can.
    fn holder(&self, task: &Task) -> Option<&'s Task> {
        let wanted = only_object(task)?;
        let [holder] = wanted.held_by.as_slice() else { return None };
        self.tasks.get(holder).copied()
    }

    fn circle(&self, circle: &[&Task]) -> Finding {
        let links: Vec<(&&Task, &TaskWaitsFor)> =
            circle.iter().filter_map(|task| Some((task, only_object(task)?))).collect();
        let mut certainty = Certainty::Certain;
        let mut steps = Vec::new();
        for (index, (task, wanted)) in links.iter().enumerate() {
            let (holder, _) = links[(index + 1) % links.len()];
            let held = holder.holds.iter().find(|held| held.address == wanted.address);
            // Of a semaphore somebody who is not seen may have the rest.
            let is_sure =
                wanted.kind != SyncKind::Semaphore && held.is_none_or(|held| held.evidence < Evidence::Inferred);
            if !is_sure {
                certainty = Certainty::Likely;
            }
            let place = place(task).map(|place| format!(" at {place}")).unwrap_or_default();
            steps.push(format!(
                "{} awaits {}{place}, {}",
                called(task),
                object(wanted),
                holds(task, holder, wanted, held)
            ));
        }
        let text = match steps.as_slice() {
            [one] => one.clone(),
            _ => format!("{} tasks of {} wait for each other: {}", circle.len(), circle[0].runtime, steps.join("; ")),
        };
        let objects = links.iter().map(|(_, wanted)| wanted.address).collect();
        Finding { objects, ..self.finding(FindingKind::TaskDeadlock, certainty, Vec::new(), text) }
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
                waiting(holder),
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
fn called(task: &Task) -> String {
    match task.start_function.as_deref() {
        Some(name) => format!("task {} ({name})", task.id),
        None => format!("task {}", task.id),
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
    let who = if task.id == holder.id { "a future of the same task".to_owned() } else { called(holder) };
    match held {
        Some(held) if held.unpolled && task.id == holder.id => {
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
