//! Threads of several processes, and who of them waits for whom: by locks, descriptors, file locks and children.

use super::calls;
use super::knot::{End, Knot, Knotted, Need, Rule, Spot};
use super::look::has_not_moved;
use super::partners::{FoundPartners, Relation, partners};
use crate::host::{self, Host};
use crate::look::{Look, Names, Scope};
use crate::model::{Direction, HolderStatus, OutsideKind, Snapshot, SyncKind, SyncObject, Syscall};
use crate::proc::KernelState;
use crate::target::{Live, LwpFacts, Target};
use crate::{Lwp, Pid, RemoteAddr};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Processes that one wait is followed into, and their threads.
const PROCESSES: usize = 48;
const THREADS: usize = 4096;
/// For how long threads must stand still that are said to wait for each other.
const MOMENT: Duration = Duration::from_millis(20);

/// A thread of one of the processes.
pub(super) struct NetThread {
    pub(super) facts: LwpFacts,
    /// The call that it sleeps in, with its descriptors.
    pub(super) call: Option<Syscall>,
    /// Who could end its wait, where that leaves the process.
    pub(super) partners: Vec<FoundPartners>,
    /// Children whose end wakes it.
    pub(super) children: Vec<Pid>,
    /// The lock that it waits for, in words, and where that is.
    pub(super) lock: Option<(RemoteAddr, String)>,
}

/// Processes that were looked into.
pub(crate) struct Net {
    pub(super) host: Rc<Host>,
    pub(super) threads: BTreeMap<Spot, NetThread>,
    knot: Knot,
    /// Why processes could not be looked into.
    pub(super) closed: BTreeMap<Pid, String>,
    /// Processes that may be woken by a timer of their own.
    alarmed: BTreeSet<Pid>,
    /// What was read of the locks of processes that have several threads.
    pub(super) snapshots: HashMap<Pid, Snapshot>,
    /// The descriptors of all processes, read after all threads were looked at.
    again: OnceCell<Host>,
    /// Whether descriptors are in messages that nobody has received yet.
    under_way: OnceCell<bool>,
    /// Which sets of threads were seen to stand still, or not to.
    still: RefCell<HashMap<BTreeSet<Spot>, bool>>,
    /// Threads whose waits were seen to rest on nothing outside of their process, by the strict rule or the other one.
    staying: RefCell<HashSet<(Spot, bool)>>,
}

/// Threads that cannot go on: by the strict rule, and where those do not count that wait for work elsewhere.
pub(crate) struct Stuck {
    strict: BTreeSet<Spot>,
    loose: BTreeSet<Spot>,
}

impl Stuck {
    pub(super) fn by_rule(&self, is_strict: bool) -> &BTreeSet<Spot> {
        if is_strict { &self.strict } else { &self.loose }
    }

    /// Whether a process has such threads.
    pub(crate) fn concerns(&self, pid: Pid) -> bool {
        self.loose.iter().chain(&self.strict).any(|spot| spot.pid == pid)
    }
}

/// Threads that wait for each other.
pub(super) struct Circle {
    /// Each waits for the next; the last one for the first. One that only itself could wake is alone.
    pub(super) spots: Vec<Spot>,
    /// Whether all who could end a wait in it are known, and none of them waits for work elsewhere.
    pub(super) is_strict: bool,
}

impl Net {
    pub(crate) fn new(host: &Rc<Host>) -> Self {
        let (threads, closed, alarmed, snapshots, again, under_way, still, staying) = Default::default();
        let knot = Knot::default();
        Self { host: host.clone(), threads, knot, closed, alarmed, snapshots, again, under_way, still, staying }
    }

    /// Adds the threads of a process; of those that wait for locks nothing is known yet.
    pub(crate) fn add(&mut self, target: &dyn Target, facts: Vec<LwpFacts>) {
        let pid = target.pid();
        let signals = OnceCell::new();
        for facts in facts.into_iter().filter(|facts| !facts.state.has_ended()) {
            let spot = Spot { pid, lwp: facts.lwp };
            self.knot.processes.entry(pid).or_default().push(facts.lwp);
            let mut call = facts.syscall.and_then(|call| call.call());
            let is_asleep = facts.state == KernelState::Sleeping;
            let mut found = Vec::new();
            if let Some(call) = call.as_mut() {
                calls::add_descriptors_of(target, call);
                if is_asleep || calls::kind_of(call) == Some(OutsideKind::Child) {
                    found = partners(&self.host, target, facts.lwp, call);
                }
            }
            let watches = match &call {
                Some(call) => calls::awaited(target, call).iter().map(|awaited| awaited.number).collect(),
                None => Vec::new(),
            };
            let is_idle = (found.is_empty() || call.as_ref().is_some_and(calls::is_timed))
                && call.as_ref().is_some_and(|call| calls::outside(call).is_idle());
            let is_input = !found.is_empty() && found.iter().all(|one| one.direction == Some(Direction::Input));
            let children = match found.is_empty() {
                true => Vec::new(),
                false => signals.get_or_init(|| self.signals_of(target)).clone(),
            };
            let is_timed = call.as_ref().is_some_and(calls::is_timed);
            let need = if is_timed { Need::Free } else { need_of(&found, &children) };
            self.knot.threads.insert(spot, Knotted { need, is_idle, is_input, watches });
            self.threads.insert(spot, NetThread { facts, call, partners: found, children, lock: None });
        }
    }

    /// Notes which signals may wake a process. Gives the children whose end does, of one that wants to know of it.
    fn signals_of(&mut self, target: &dyn Target) -> Vec<Pid> {
        let handled = target.handled_signals().unwrap_or_default();
        let handles = |signal: i32| handled.iter().any(|it| it == signal as u32);
        if [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGIO].into_iter().any(handles) {
            self.alarmed.insert(target.pid());
        }
        if handles(libc::SIGCHLD) { host::children(target.pid()) } else { Vec::new() }
    }

    /// Adds what the threads of `snapshot` wait for inside of the process.
    pub(crate) fn add_locks(&mut self, snapshot: &Snapshot) {
        let pid = snapshot.target.pid;
        for object in &snapshot.objects {
            for waiter in object.waiters.iter().filter(|waiter| waiter.pid.is_none()) {
                let spot = Spot { pid, lwp: waiter.lwp };
                let is_futex = |thread: &&mut NetThread| thread.facts.syscall.is_some_and(|call| call.is_futex());
                let Some(thread) = self.threads.get_mut(&spot).filter(is_futex) else { continue };
                thread.lock = Some((object.address, super::words::label(object)));
                if let Some(knotted) = self.knot.threads.get_mut(&spot).filter(|_| waiter.stable && !waiter.timed) {
                    knotted.need = need_of_lock(object, pid);
                }
            }
        }
    }

    /// Goes into the processes that waits lead to, from those that were added, and so on.
    pub(crate) fn explore(&mut self, target: &dyn Target) {
        let (processes, threads) = (self.knot.processes.len() + PROCESSES, self.threads.len() + THREADS);
        let mut seen: BTreeSet<Pid> = self.knot.processes.keys().copied().collect();
        let mut todo: Vec<Pid> = seen.iter().flat_map(|pid| self.leads_to(*pid)).collect();
        while let Some(pid) = todo.pop() {
            if !seen.insert(pid) || pid.0 == std::process::id() as i32 {
                continue;
            }
            let limits = target.limits();
            if self.knot.processes.len() >= processes || self.threads.len() >= threads || limits.is_over() {
                let why = if limits.is_over() { "the look has used its time" } else { "one look goes into 48 of them" };
                limits.leave_out("some of the processes that waits lead to", why);
                return;
            }
            let Some(other) = target.other(pid) else { continue };
            if let Some(denial) = other.denial() {
                self.closed.insert(pid, denial.to_string());
                continue;
            }
            let Ok(lwps) = other.lwps() else { continue };
            let facts: Vec<LwpFacts> = other.brief_facts(&lwps).into_iter().flatten().collect();
            let has_locks = facts.iter().any(|facts| facts.syscall.is_some_and(|call| call.is_futex()));
            self.add(&*other, facts);
            if has_locks && let Ok(snapshot) = Look::new(&*other).take(Scope::Waited, Names::Findings) {
                self.add_locks(&snapshot);
                self.snapshots.insert(pid, snapshot);
            }
            todo.extend(self.leads_to(pid));
        }
    }

    /// The processes that waits of one lead to.
    fn leads_to(&self, pid: Pid) -> Vec<Pid> {
        let mut found = BTreeSet::new();
        for thread in self.spots_of(pid).filter_map(|spot| self.knot.threads.get(&spot)) {
            match &thread.need {
                Need::Holders(holders) => found.extend(holders.iter().map(|holder| holder.pid)),
                Need::Ends(ends) => found.extend(ends.iter().map(|end| end.pid)),
                Need::Own | Need::Free => {}
            }
        }
        // Those too that were only seen last where a thread waits: what they do is told.
        let threads = self.spots_of(pid).filter_map(|spot| self.threads.get(&spot));
        let hints = threads.flat_map(|thread| &thread.partners).filter(|one| one.is_hint);
        found.extend(hints.flat_map(FoundPartners::others));
        found.into_iter().collect()
    }

    /// The threads of a process.
    pub(super) fn spots_of(&self, pid: Pid) -> impl Iterator<Item = Spot> + '_ {
        let lwps = self.knot.processes.get(&pid).into_iter().flatten();
        lwps.map(move |lwp| Spot { pid, lwp: *lwp })
    }

    /// The thread that waits at one of these descriptors of a process, or its only thread.
    pub(super) fn thread_at(&self, pid: Pid, numbers: &[i32]) -> Option<Spot> {
        let watches = |spot: &Spot| {
            let thread = self.knot.threads.get(spot);
            thread.is_some_and(|thread| thread.watches.iter().any(|number| numbers.contains(number)))
        };
        let mut spots = self.spots_of(pid);
        match (spots.next(), spots.next()) {
            (Some(one), None) => Some(one),
            _ => self.spots_of(pid).find(watches),
        }
    }

    /// The thread of a process that went to sleep when the one at `waiter` did, if it is one: the one that took its request.
    pub(super) fn thread_by_time(&self, waiter: Spot, pid: Pid) -> Option<Spot> {
        /// How far the two times may be apart.
        const APART: Duration = Duration::from_millis(30);
        let began = Live::open(waiter.pid).ok()?.last_ran(&[waiter.lwp]).pop().flatten()?;
        let lwps: Vec<Lwp> = self.spots_of(pid).filter(|spot| !self.is_idle(*spot)).map(|spot| spot.lwp).collect();
        let times = Live::open(pid).ok()?.last_ran(&lwps);
        let apart = |at: Instant| at.saturating_duration_since(began) + began.saturating_duration_since(at);
        let is_near = |at: &Option<Instant>| at.is_some_and(|at| apart(at) <= APART);
        let mut near = lwps.iter().zip(&times).filter(|(_, at)| is_near(at)).map(|(lwp, _)| Spot { pid, lwp: *lwp });
        // A wait that has just begun is not told from others that did.
        match (near.next(), near.next()) {
            (Some(one), None) if began.elapsed() > 4 * APART => Some(one),
            _ => None,
        }
    }

    pub(super) fn is_idle(&self, spot: Spot) -> bool {
        self.knot.threads.get(&spot).is_some_and(|thread| thread.is_idle)
    }

    /// Whether a thread waits at a descriptor, or for another process.
    pub(super) fn is_at_descriptor(&self, spot: Spot) -> bool {
        self.threads.get(&spot).is_some_and(|thread| !thread.partners.is_empty())
    }

    /// Threads that cannot go on.
    pub(crate) fn stuck(&self) -> Stuck {
        Stuck { strict: self.knot.stuck(Rule::Strict), loose: self.knot.stuck(Rule::WithoutIdle) }
    }

    /// Whether what the wait of a thread rests on is not within its process alone, or at a descriptor: locks are told elsewhere.
    pub(super) fn leaves(&self, spot: Spot, is_strict: bool) -> bool {
        let mut staying = self.staying.borrow_mut();
        if staying.contains(&(spot, is_strict)) {
            return false;
        }
        let support = self.knot.support(spot, rule(is_strict));
        let leaves = support.iter().any(|spot| self.is_at_descriptor(*spot));
        if !leaves {
            staying.extend(support.into_iter().map(|spot| (spot, is_strict)));
        }
        leaves
    }

    /// The circle that a thread is in, or that it is alone; `None` if it only waits for those that are, or it was not seen to
    /// stand still.
    pub(super) fn circle(
        &self,
        target: &dyn Target,
        start: Spot,
        stuck: &BTreeSet<Spot>,
        is_strict: bool,
    ) -> Option<Circle> {
        let rule = rule(is_strict);
        let spots = match self.knot.circle_through(start, stuck, rule) {
            Some(circle) => circle,
            None if self.knot.is_alone(start, rule) => vec![start],
            None => return None,
        };
        // Nobody has to send something: those who only listen to each other may wait for a third.
        let only_listens = |spot: &Spot| self.knot.threads.get(spot).is_some_and(|thread| thread.is_input);
        if !is_strict && spots.iter().all(only_listens) {
            return None;
        }
        let support = self.knot.support(start, rule);
        let known = self.still.borrow().get(&support).copied();
        let is_still = known.unwrap_or_else(|| self.stands_still(target, &support));
        self.still.borrow_mut().insert(support, is_still);
        is_still.then_some(Circle { spots, is_strict })
    }

    /// Whether a thread of a circle may be woken by a timer of its own process, or waits for signals in any case.
    pub(super) fn may_be_woken(&self, circle: &[Spot]) -> bool {
        let partners =
            |spot: &Spot| self.threads.get(spot).map(|thread| thread.partners.as_slice()).unwrap_or_default();
        let is_signalled = |spot: &Spot| partners(spot).iter().any(|one| one.relation == Relation::Signals);
        // The kernel itself may count an eventfd, for what a program has asked it to do; others may open what has a name.
        let others_come = |one: &FoundPartners| one.kind == OutsideKind::Eventfd || one.is_named;
        let is_open = |spot: &Spot| partners(spot).iter().any(others_come);
        circle.iter().any(|spot| self.alarmed.contains(&spot.pid) || is_signalled(spot) || is_open(spot))
    }

    /// Whether all who could end the waits of these threads were looked at: not while descriptors are on their way to somebody.
    pub(super) fn is_whole(&self, circle: &[Spot]) -> bool {
        let threads = circle.iter().filter_map(|spot| self.threads.get(spot));
        let under_way =
            || *self.under_way.get_or_init(|| self.again.get().is_some_and(Host::has_descriptors_under_way));
        threads.flat_map(|thread| &thread.partners).all(|one| one.holders.is_whole) && !under_way()
    }

    /// Whether descriptors were seen to be on their way to somebody, as far as that was asked for.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.get().is_some_and(|is_under_way| *is_under_way)
    }

    /// Whether threads of which none can go on are where they were, with the same others at the other ends. Each of them was
    /// asleep from the first look at it to now: so none has opened, closed or passed on anything.
    fn stands_still(&self, target: &dyn Target, spots: &BTreeSet<Spot>) -> bool {
        let pids: BTreeSet<Pid> = spots.iter().map(|spot| spot.pid).collect();
        if !pids.iter().all(|pid| self.has_not_moved(target, *pid, spots)) {
            return false;
        }
        let host = self.again.get_or_init(|| Host::new(target.limits()));
        let is_same = |spot: &Spot| {
            let Some(NetThread { call: Some(call), partners: before, .. }) = self.threads.get(spot) else {
                return true;
            };
            if before.is_empty() {
                return true;
            }
            let now = open(target, spot.pid).map(|other| partners(host, &*other, spot.lwp, call)).unwrap_or_default();
            let pids = |found: &[FoundPartners]| found.iter().map(|one| one.holders.pids()).collect::<Vec<_>>();
            pids(before) == pids(&now)
        };
        if !spots.iter().all(is_same) {
            return false;
        }
        std::thread::sleep(MOMENT);
        pids.iter().all(|pid| self.has_not_moved(target, *pid, spots))
    }

    /// Whether those of `spots` that are of process `pid` have not moved, and no thread has come to it.
    fn has_not_moved(&self, target: &dyn Target, pid: Pid, spots: &BTreeSet<Spot>) -> bool {
        let now = || {
            let other = open(target, pid)?;
            Some(other.brief_facts(&other.lwps().ok()?).into_iter().flatten().collect::<Vec<LwpFacts>>())
        };
        let Some(now) = now() else { return false };
        let now = now.iter().filter(|facts| !facts.state.has_ended()).map(|facts| (facts.lwp, facts));
        let now: HashMap<Lwp, &LwpFacts> = now.collect();
        let is_known = |lwp: &Lwp| self.threads.contains_key(&Spot { pid, lwp: *lwp });
        let rests = |spot: &Spot| {
            let then = self.threads.get(spot).map(|thread| &thread.facts);
            then.zip(now.get(&spot.lwp)).is_some_and(|(then, now)| has_not_moved(then, now))
        };
        now.keys().all(is_known) && spots.iter().filter(|spot| spot.pid == pid).all(rests)
    }
}

fn rule(is_strict: bool) -> Rule {
    if is_strict { Rule::Strict } else { Rule::WithoutIdle }
}

fn open(target: &dyn Target, pid: Pid) -> Option<Box<dyn Target>> {
    target.other(pid)
}

/// Whom a thread needs that waits at descriptors, for a file lock or for children.
fn need_of(found: &[FoundPartners], children: &[Pid]) -> Need {
    // Who opens the other end next cannot be known where nobody else has it.
    let may_come = |one: &FoundPartners| one.is_named && one.others().is_empty();
    let is_open = |one: &FoundPartners| one.is_hint || may_come(one) || one.holders.pids().is_empty();
    if found.is_empty() || found.iter().any(is_open) {
        return Need::Free;
    }
    let end = |one: &FoundPartners| {
        let pids = one.holders.pids().into_iter();
        pids.map(|pid| End { pid, numbers: one.holders.numbers_of(pid) }).collect::<Vec<_>>()
    };
    let children = children.iter().map(|pid| End { pid: *pid, numbers: Vec::new() });
    Need::Ends(found.iter().flat_map(end).chain(children).collect())
}

/// Whom a thread of `pid` needs that waits for a lock.
fn need_of_lock(object: &SyncObject, pid: Pid) -> Need {
    let alive = |status| matches!(status, HolderStatus::Alive | HolderStatus::OtherProcess);
    let holders: Vec<Spot> = object
        .holders
        .iter()
        .filter(|holder| alive(holder.status))
        .filter_map(|holder| Some(Spot { pid: holder.pid.unwrap_or(pid), lwp: holder.lwp? }))
        .collect();
    match object.kind {
        _ if object.holders.len() != holders.len() => Need::Free,
        _ if !holders.is_empty() => Need::Holders(holders),
        // Who else has the memory could wake it.
        _ if object.shared != Some(false) && object.kind != SyncKind::Park => Need::Free,
        _ => Need::Own,
    }
}
