//! Findings in words.

use super::calls;
use super::findings::{is_held_by_nobody, is_held_by_unknown, is_timed};
use super::unwoken::Sleepers;
use crate::arch::syscall_word;
use crate::model::{Certainty, Detail, Finding, FindingKind, Snapshot, SyncKind, SyncObject, Thread, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::runtimes::{self, Nature};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a thread does that wants to run.
pub(super) const NO_CPU: &str = "is runnable, but gets no CPU";

type Facts = BTreeMap<Lwp, LwpFacts>;

/// What the words are taken from, beside the snapshot.
pub(super) struct Seen<'a> {
    pub(super) facts: &'a Facts,
    /// Threads of other processes.
    pub(super) strangers: &'a Facts,
    /// Threads that went on during the look.
    pub(super) moved: &'a HashSet<Lwp>,
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
        seen,
    };
    let texts: Vec<String> = snapshot.findings.iter().map(|finding| words.text(finding).unwrap_or_default()).collect();
    for (finding, text) in snapshot.findings.iter_mut().zip(texts) {
        finding.text = text;
    }
}

/// Says of threads that nobody is left to wake why that is so, and how sure. Where stacks are known, what the threads wait for
/// is told by them. Gives whether all threads wait for ever, as far as the process itself goes.
pub(super) fn describe_unwoken(target: &dyn Target, snapshot: &mut Snapshot, facts: &Facts) -> bool {
    let is_unwoken = |finding: &Finding| finding.kind.is_unwoken() && !finding.objects.is_empty();
    if !snapshot.findings.iter().any(is_unwoken) {
        return false;
    }
    let sleepers = Sleepers::new(target, facts, &snapshot.threads);
    let is_all = sleepers.is_all(&snapshot.objects);
    let doubt = sleepers.doubt();
    let objects: HashMap<RemoteAddr, &SyncObject> =
        snapshot.objects.iter().map(|object| (object.address, object)).collect();
    let threads = snapshot.threads.iter();
    if is_all {
        raise_semaphores(&mut snapshot.findings, &objects);
    }
    let ways: HashMap<Lwp, &str> =
        threads.filter_map(|thread| Some((thread.lwp?, thread.waits_for.as_ref()?.how?))).collect();
    for finding in snapshot.findings.iter_mut().filter(|finding| is_unwoken(finding)) {
        let Some(object) = finding.objects.first().and_then(|address| objects.get(address)) else { continue };
        let how = finding.threads.first().and_then(|lwp| ways.get(lwp));
        let waiting = count(finding.threads.len(), "thread waits", "threads wait");
        let what = how.map_or_else(|| what_for(object), |how| format!("{how}, {}", on_what(object)));
        let what = match () {
            () if is_held_by_unknown(object) => format!("{what}, whose holder is not known"),
            () if is_held_by_nobody(object) => format!("{what}, which nobody holds"),
            () => what,
        };
        let why = sleepers.why(object, &finding.threads, is_all, doubt.as_deref());
        finding.text = format!("{waiting} {what}, and {why}");
        if is_all && doubt.is_none() {
            finding.certainty = Certainty::Certain;
        }
    }
    is_all
}

/// Circles with semaphores, which anybody may post: but all threads wait for ever, so nobody will.
fn raise_semaphores(findings: &mut [Finding], objects: &HashMap<RemoteAddr, &SyncObject>) {
    let is_held = |address: &RemoteAddr| objects.get(address).is_some_and(|object| !object.holders.is_empty());
    for finding in findings.iter_mut().filter(|finding| finding.kind.is_hang()) {
        if finding.certainty == Certainty::Possible && finding.objects.iter().all(is_held) {
            finding.certainty = Certainty::Likely;
        }
    }
}

struct Words<'a> {
    objects: HashMap<RemoteAddr, &'a SyncObject>,
    threads: HashMap<Lwp, &'a Thread>,
    /// What threads wait for.
    waits: HashMap<Lwp, &'a SyncObject>,
    /// Processes of threads that hold something and are not of this one.
    strangers: HashMap<Lwp, Pid>,
    seen: &'a Seen<'a>,
}

impl Words<'_> {
    fn text(&self, finding: &Finding) -> Option<String> {
        let object = |index: usize| self.objects.get(finding.objects.get(index)?).copied();
        Some(match finding.kind {
            FindingKind::Deadlock | FindingKind::SelfDeadlock | FindingKind::RecursiveRead => self.circle(finding),
            FindingKind::OwnerExited | FindingKind::OwnerIsForkParent => self.owner(object(0)?),
            FindingKind::OwnerDied => owner_died(object(0)?, |lwp| self.thread(lwp)),
            // These come with their words, or get them later.
            FindingKind::HandedOver
            | FindingKind::ProcessCircle
            | FindingKind::TaskDeadlock
            | FindingKind::BlockedWorker
            | FindingKind::GuardAcrossAwait
            | FindingKind::CondWithoutSignaller
            | FindingKind::NobodyLeft
            | FindingKind::PoolStarved => return None,
            FindingKind::LongChain => self.chain(finding)?,
            FindingKind::HolderUnknown => format!(
                "{} for {}, and it is not known who holds it",
                count(finding.threads.len() + finding.behind.len(), "thread waits", "threads wait"),
                label(object(0)?)
            ),
        })
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
                let why = object.holders.iter().find(|holder| holder.lwp == Some(*lwp)).and_then(|it| it.why.as_ref());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                format!("{} waits for {}, which it holds itself{why}", self.thread(*lwp), label(object))
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
            None if number.is_empty() => "is held by a thread that has ended".to_owned(),
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
            (ThreadState::Run, ..) => NO_CPU.to_owned(),
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
        _ if runtimes::nature(object.kind, object.family) == Nature::OwnWork => format!("for {}", label(object)),
        SyncKind::Cond | SyncKind::Futex => format!("on {}", label(object)),
        SyncKind::Barrier => format!("at {}{}", label(object), came(object)),
        SyncKind::Park => "until it is unparked".to_owned(),
        _ => format!("for {}", label(object)),
    }
}

/// ` (3 of 4 have come)`, of a barrier that tells.
pub(super) fn came(object: &SyncObject) -> String {
    match object.detail {
        Detail::Barrier { needed, arrived } if arrived > 0 && arrived < needed => {
            format!(" ({arrived} of {needed} have come)")
        }
        _ => String::new(),
    }
}

/// The same of a wait that functions tell of.
fn on_what(object: &SyncObject) -> String {
    match object.kind {
        SyncKind::Park => "parked".to_owned(),
        _ => what_for(object),
    }
}

pub(super) fn label(object: &SyncObject) -> String {
    if let Some(noun) = object.noun() {
        return if object.is_known_by_noun() { noun.to_owned() } else { format!("{noun} {}", object.address) };
    }
    if object.kind == SyncKind::Join {
        let lwp = object.holders.first().and_then(|holder| holder.lwp);
        let thread = || lwp.map_or_else(|| "a thread".to_owned(), |lwp| format!("thread {lwp}"));
        return format!("the end of {}", object.name.clone().unwrap_or_else(thread));
    }
    match &object.name {
        // A name that says itself what it is.
        Some(name) if name.starts_with("the ") => name.clone(),
        Some(name) => format!("{} {name}", object.kind.word()),
        None => format!("{} {}", object.kind.word(), object.address),
    }
}

pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
