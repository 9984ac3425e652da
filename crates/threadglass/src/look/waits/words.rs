//! Findings in words.

use super::calls;
use super::findings::is_timed;
use crate::arch::syscall_word;
use crate::model::{Finding, FindingKind, SignalSet, Snapshot, SyncKind, SyncObject, Thread, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::target::LwpFacts;
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

type Facts = BTreeMap<Lwp, LwpFacts>;

/// What the words are taken from, beside the snapshot.
pub(super) struct Seen<'a> {
    pub(super) facts: &'a Facts,
    /// Threads of other processes.
    pub(super) strangers: &'a Facts,
    /// Threads that went on during the look.
    pub(super) moved: &'a HashSet<Lwp>,
    /// Signals that the process handles, where that is known.
    pub(super) handled: Option<SignalSet>,
}

/// Says in the findings of `snapshot` what they are.
pub(super) fn describe(snapshot: &mut Snapshot, seen: &Seen<'_>) {
    let objects = snapshot.objects.iter();
    let words = Words {
        objects: objects.clone().map(|object| (object.address, object)).collect(),
        threads: snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect(),
        waits: objects
            .clone()
            .flat_map(|object| object.waiters.iter().map(move |waiter| (waiter.lwp, object)))
            .collect(),
        strangers: (objects.flat_map(|object| &object.holders))
            .filter_map(|holder| Some((holder.lwp?, holder.pid?)))
            .collect(),
        left: seen.facts.values().filter(|facts| !facts.state.has_ended()).count(),
        seen,
    };
    let texts: Vec<String> = snapshot.findings.iter().map(|finding| words.text(finding).unwrap_or_default()).collect();
    for (finding, text) in snapshot.findings.iter_mut().zip(texts) {
        finding.text = text;
    }
}

struct Words<'a> {
    objects: HashMap<RemoteAddr, &'a SyncObject>,
    threads: HashMap<Lwp, &'a Thread>,
    /// What threads wait for.
    waits: HashMap<Lwp, &'a SyncObject>,
    /// Processes of threads that hold something and are not of this one.
    strangers: HashMap<Lwp, Pid>,
    /// Number of threads that have not ended.
    left: usize,
    seen: &'a Seen<'a>,
}

impl Words<'_> {
    fn text(&self, finding: &Finding) -> Option<String> {
        let object = |index: usize| self.objects.get(finding.objects.get(index)?).copied();
        Some(match finding.kind {
            FindingKind::Deadlock | FindingKind::SelfDeadlock | FindingKind::RecursiveRead => self.circle(finding),
            FindingKind::OwnerExited | FindingKind::OwnerIsForkParent => self.owner(object(0)?),
            FindingKind::OwnerDied => owner_died(object(0)?, |lwp| self.thread(lwp)),
            FindingKind::CondWithoutSignaller => format!(
                "{} on {}{}",
                count(finding.threads.len(), "thread waits", "threads wait"),
                label(object(0)?),
                self.nobody_else()
            ),
            FindingKind::NobodyLeft => format!(
                "{} {}{}",
                count(finding.threads.len(), "thread waits", "threads wait"),
                what_for(object(0)?),
                self.nobody_else()
            ),
            // These come with their words.
            FindingKind::HandedOver | FindingKind::ProcessCircle => return None,
            FindingKind::LongChain => self.chain(finding)?,
            FindingKind::HolderUnknown => format!(
                "{} for {}, and it is not known who holds it",
                count(finding.threads.len() + finding.behind.len(), "thread waits", "threads wait"),
                label(object(0)?)
            ),
        })
    }

    /// What the other threads do when nobody is left to wake some, and who else could.
    fn nobody_else(&self) -> String {
        let others = match self.left {
            1 => ", and the process has no other thread",
            _ => ", and every other thread of the process waits too",
        };
        match self.seen.handled {
            Some(none) if none.is_empty() => others.to_owned(),
            Some(signals) => format!("{others}; only a signal handler could end that (of {signals})"),
            None => format!("{others}; only a signal handler could end that"),
        }
    }

    fn circle(&self, finding: &Finding) -> String {
        let objects: Vec<&SyncObject> =
            finding.objects.iter().filter_map(|address| self.objects.get(address)).copied().collect();
        let next = finding.threads.iter().cycle().skip(1);
        let steps = finding.threads.iter().zip(next).zip(&objects);
        let mut text = match (finding.kind, objects.as_slice(), finding.threads.as_slice()) {
            (FindingKind::RecursiveRead, [object], [lwp]) => format!(
                "{} has {} read-locked and wants to read-lock it again, but a writer is queued in between",
                self.thread(*lwp),
                label(object)
            ),
            (FindingKind::SelfDeadlock, [object], [lwp]) if object.kind == SyncKind::Join => {
                format!("{} waits for its own end", self.thread(*lwp))
            }
            (FindingKind::SelfDeadlock, [object], [lwp]) => {
                format!("{} waits for {}, which it holds itself", self.thread(*lwp), label(object))
            }
            _ => {
                let step = |((lwp, next), object): ((&Lwp, &Lwp), &&SyncObject)| match object.kind {
                    SyncKind::Join => format!("{} waits for the end of {}", self.thread(*lwp), self.thread(*next)),
                    _ => format!("{} waits for {}, held by {}", self.thread(*lwp), label(object), self.thread(*next)),
                };
                steps.map(step).collect::<Vec<_>>().join("; ")
            }
        };
        if finding.threads.iter().zip(&objects).any(|(lwp, object)| is_timed(*lwp, object)) {
            text += " (a wait among these has a time limit, so it may end by itself)";
        }
        text
    }

    fn owner(&self, object: &SyncObject) -> String {
        let holder = object.holders.iter().find(|holder| holder.recorded.is_some());
        let number = holder.and_then(|holder| holder.recorded).map_or_else(String::new, |inner| format!(" {inner}"));
        let what = match holder.and_then(|holder| holder.pid) {
            None => format!("is held by thread{number}, which no longer exists"),
            Some(pid) => format!(
                "was held by thread{number} of the parent process {pid} at the time of the fork: here nobody can \
                 release it"
            ),
        };
        let waiters = count(object.waiters.len(), "thread waits", "threads wait");
        format!("{} {what}; {waiters} for it", label(object))
    }

    fn chain(&self, finding: &Finding) -> Option<String> {
        let (root, last) = (*finding.threads.last()?, self.objects.get(finding.objects.last()?)?);
        let waiting = count(finding.threads.len() - 1 + finding.behind.len(), "thread waits", "threads wait");
        let doing = self.doing(root);
        Some(match last.kind {
            SyncKind::Join => format!("{waiting} for the end of {}, which {doing}", self.thread(root)),
            _ => format!("{waiting} for {}, which holds {} and {doing}", self.thread(root), label(last)),
        })
    }

    fn thread(&self, lwp: Lwp) -> String {
        if let Some(name) = self.threads.get(&lwp).and_then(|thread| thread.name.as_deref()) {
            return format!("{name} ({lwp})");
        }
        match self.strangers.get(&lwp) {
            Some(pid) => format!("thread {lwp} of process {pid}"),
            None => format!("thread {lwp}"),
        }
    }

    /// What the thread at the end of a chain does.
    fn doing(&self, lwp: Lwp) -> String {
        let Some(thread) = self.threads.get(&lwp) else { return self.stranger_doing(lwp) };
        let waits = self.waits.get(&lwp);
        let deep = self.seen.facts.get(&lwp).is_some_and(|facts| facts.state == KernelState::DiskSleep);
        let deep = if deep { " where no signal wakes it (D state)" } else { "" };
        let doing = match (thread.state, waits, &thread.syscall) {
            // What was seen of it, and what it holds, are of different moments.
            _ if self.seen.moved.contains(&lwp) => "goes on (it moved during the look)".to_owned(),
            (ThreadState::Active, ..) if thread.stop.is_some() => "was running".to_owned(),
            (ThreadState::Active, ..) => "runs".to_owned(),
            (ThreadState::Run, ..) => "is runnable, but gets no CPU".to_owned(),
            (ThreadState::Stopped, ..) => "was running".to_owned(),
            (ThreadState::Zombie, ..) => "has ended".to_owned(),
            (ThreadState::Unknown, ..) => "is in an unknown state".to_owned(),
            (_, Some(object), _) => format!("waits {}", what_for(object)),
            (_, None, Some(call)) => format!("is {}{deep}", calls::doing(call)),
            (_, None, None) if thread.stop.is_some() => "was running".to_owned(),
            (_, None, None) => format!("is asleep{deep}"),
        };
        match &thread.stop {
            Some(stop) => format!("is {}; it {doing}", stop.text()),
            None => doing,
        }
    }

    /// What a thread of another process does.
    fn stranger_doing(&self, lwp: Lwp) -> String {
        match self.seen.strangers.get(&lwp).and_then(|facts| facts.syscall) {
            Some(SyscallFile::Inside { number, .. }) => format!("is asleep in {}", syscall_word(number)),
            Some(SyscallFile::Running) => "runs".to_owned(),
            Some(SyscallFile::Outside { .. }) => "is stopped".to_owned(),
            None => "is not in this process".to_owned(),
        }
    }
}

/// Of a robust mutex whose owner died.
pub(super) fn owner_died(object: &SyncObject, name: impl Fn(Lwp) -> String) -> String {
    let now = match object.holders.first().and_then(|holder| holder.lwp) {
        Some(lwp) => format!("{} has it now, and has not yet marked it as consistent", name(lwp)),
        None => "the next thread that locks it is told, and must repair what it protects".to_owned(),
    };
    format!("the owner of {} died: {now}", label(object))
}

/// What a thread waits for that waits for `object`: `for mutex m`, `on condition variable c`.
pub(super) fn what_for(object: &SyncObject) -> String {
    match object.kind {
        SyncKind::Cond | SyncKind::Futex => format!("on {}", label(object)),
        SyncKind::Barrier => format!("at {}", label(object)),
        SyncKind::Park => "until it is unparked".to_owned(),
        _ => format!("for {}", label(object)),
    }
}

pub(super) fn label(object: &SyncObject) -> String {
    if object.kind == SyncKind::Join {
        let lwp = object.holders.first().and_then(|holder| holder.lwp);
        let thread = || lwp.map_or_else(|| "a thread".to_owned(), |lwp| format!("thread {lwp}"));
        return format!("the end of {}", object.name.clone().unwrap_or_else(thread));
    }
    match &object.name {
        Some(name) => format!("{} {name}", object.kind.word()),
        None => format!("{} {}", object.kind.word(), object.address),
    }
}

pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
