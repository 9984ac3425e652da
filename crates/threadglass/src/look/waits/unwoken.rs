//! Threads that nobody is left to wake.
//!
//! A thread that sleeps on a word of memory without a time limit goes on if another thread wakes it. If all threads sleep so,
//! none will: that is certain, unless somebody from outside can. Where other threads go on, one of them may have the word;
//! what a thread at rest keeps in its registers cannot be seen from outside, so a search of memory would prove nothing. Then
//! only what counts its threads tells: a barrier.

use super::calls;
use super::findings::{finding, is_held_by_nobody, is_held_by_unknown};
use super::graph::Graph;
use crate::Lwp;
use crate::model::{
    Certainty, Detail, Finding, FindingKind, SignalSet, SyncKind, SyncObject, Thread, ThreadState, Waiter,
};
use crate::proc::map_at;
use crate::runtimes::{self, Nature};
use crate::table::agent_thread;
use crate::target::{LwpFacts, OutsideWaker, Target};
use std::collections::{BTreeMap, HashSet};

/// Barriers whose missing threads are looked for.
const MAX_BARRIERS: usize = 64;

/// The threads of a process at one time, and what is known of them.
pub(super) struct Sleepers<'a> {
    target: &'a dyn Target,
    facts: &'a BTreeMap<Lwp, LwpFacts>,
    threads: &'a [Thread],
    /// How many threads have not ended.
    left: usize,
}

impl<'a> Sleepers<'a> {
    /// Of `target`, whose threads are these.
    pub(super) fn new(target: &'a dyn Target, facts: &'a BTreeMap<Lwp, LwpFacts>, threads: &'a [Thread]) -> Self {
        let left = facts.values().filter(|facts| !facts.state.has_ended()).count();
        Self { target, facts, threads, left }
    }

    /// What threads wait for inside the process while no thread is left that could wake them.
    pub(super) fn find(&self, objects: &[SyncObject], graph: &Graph) -> Vec<Finding> {
        if !self.is_all(objects) {
            let barriers = objects.iter().filter(|object| object.kind == SyncKind::Barrier).take(MAX_BARRIERS);
            return barriers.filter_map(|object| self.short_barrier(object, graph)).collect();
        }
        let unwoken = objects.iter().filter_map(|object| {
            let kind = match object.kind {
                _ if runtimes::nature(object.kind, object.family) == Nature::OwnWork => return None,
                SyncKind::Cond => FindingKind::CondWithoutSignaller,
                SyncKind::Semaphore
                | SyncKind::Barrier
                | SyncKind::Channel
                | SyncKind::WaitGroup
                | SyncKind::Park
                | SyncKind::Futex => FindingKind::NobodyLeft,
                // Whoever holds it will not release it: that thread waits too, or has ended.
                _ if is_held_by_unknown(object) || is_held_by_nobody(object) => FindingKind::NobodyLeft,
                _ => return None,
            };
            let threads: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
            let behind = graph.behind(&threads);
            (!threads.is_empty()).then(|| finding(kind, Certainty::Likely, threads, vec![object.address], behind))
        });
        unwoken.collect()
    }

    /// Whether every thread of the process sleeps for ever as far as the process itself goes.
    pub(super) fn is_all(&self, objects: &[SyncObject]) -> bool {
        let waited = || objects.iter().filter(|object| !object.waiters.is_empty());
        // What its next holder is about to take keeps nobody waiting.
        let is_passed = |object: &SyncObject| {
            object.holders.is_empty() && runtimes::of(object.family).keeps_waiting(object.kind, object.family)
        };
        if waited().any(|object| self.is_reached_from_outside(object) || is_passed(object)) {
            return false;
        }
        let waiters = || waited().flat_map(|object| &object.waiters);
        let waiting: HashSet<Lwp> = waiters().map(|waiter| waiter.lwp).collect();
        let mut others =
            self.facts.values().filter(|facts| !facts.state.has_ended() && !waiting.contains(&facts.lwp)).peekable();
        if waiting.is_empty() || waiters().any(|waiter| waiter.timed) {
            return false;
        }
        // Most processes have a thread that is in no such wait: then nothing more is asked for.
        if others.peek().is_none() {
            return true;
        }
        let handles = self.target.handled_signals().is_none_or(|signals| !signals.is_empty());
        let agent = agent_thread(self.target);
        others.all(|facts| {
            agent == Some(facts.inner)
                || facts
                    .syscall
                    .and_then(|call| call.call())
                    .is_some_and(|call| !handles && calls::is_endless(self.target, &call))
        })
    }

    /// Whether another process could have a hand in an object.
    fn is_reached_from_outside(&self, object: &SyncObject) -> bool {
        let in_shared_memory = || map_at(self.target.maps(), object.address).is_some_and(|map| map.shared);
        match object.shared {
            Some(false) => false,
            Some(true) => self.target.identity().core.is_some() || in_shared_memory(),
            None => in_shared_memory(),
        }
    }

    /// A barrier at which all threads of a kind have come that are left of it: the others that it waits for have ended.
    fn short_barrier(&self, object: &SyncObject, graph: &Graph) -> Option<Finding> {
        let Detail::Barrier { needed, arrived } = object.detail else { return None };
        let missing = needed.checked_sub(arrived).filter(|missing| *missing > 0 && arrived > 0)?;
        let lasts = |waiter: &Waiter| !waiter.timed && waiter.stable && waiter.pid.is_none();
        let is_whole = object.waiters.len() as u32 == arrived && object.waiters.iter().all(lasts);
        if !is_whole || self.is_reached_from_outside(object) {
            return None;
        }
        let threads: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
        self.ended_of_same_start(&threads, missing)?;
        let behind = graph.behind(&threads);
        Some(finding(FindingKind::NobodyLeft, Certainty::Likely, threads, vec![object.address], behind))
    }

    /// The function with which all of `threads` began, if `missing` others that began with it have ended, and no other lives.
    fn ended_of_same_start(&self, threads: &[Lwp], missing: u32) -> Option<&'a Thread> {
        let of = |lwp: &Lwp| self.threads.iter().find(|thread| thread.lwp == Some(*lwp));
        let first = of(threads.first()?)?;
        let start = first.start?;
        let same: Vec<&Thread> = self.threads.iter().filter(|thread| thread.start == Some(start)).collect();
        let (ended, living): (Vec<&Thread>, Vec<&Thread>) =
            same.into_iter().partition(|thread| thread.state == ThreadState::Zombie);
        let all_came = living.len() == threads.len()
            && living.iter().all(|thread| thread.lwp.is_some_and(|lwp| threads.contains(&lwp)));
        (all_came && ended.len() as u32 == missing).then_some(first)
    }

    /// What keeps a finding that every thread waits from being certain; empty if nothing does.
    pub(super) fn doubt(&self) -> Option<String> {
        if self.target.identity().core.is_some() {
            return Some("only a signal handler could end that, of which a core does not tell".to_owned());
        }
        match self.target.handled_signals() {
            Some(signals) if signals.is_empty() => {}
            Some(signals) => return Some(handler(signals)),
            None => return Some("only a signal handler could end that".to_owned()),
        }
        match self.target.outside_wakers().as_deref() {
            Some([]) => None,
            Some([OutsideWaker::Process(pid), ..]) => {
                Some(format!("only process {pid}, which works in the same memory, could end that"))
            }
            Some([OutsideWaker::Ring, ..]) => Some("only a request of io_uring could end that".to_owned()),
            None => Some("it is not known whether another process works in the same memory".to_owned()),
        }
    }

    /// Why nobody is left to end a wait for `object`.
    pub(super) fn why(&self, object: &SyncObject, threads: &[Lwp], is_all: bool, doubt: Option<&str>) -> String {
        let others = match (is_all, self.left) {
            (false, _) => return self.why_short(object, threads),
            (true, 1) => "the process has no other thread",
            (true, _) => "every other thread of the process waits too",
        };
        doubt.map_or_else(|| others.to_owned(), |doubt| format!("{others}; {doubt}"))
    }

    fn why_short(&self, object: &SyncObject, threads: &[Lwp]) -> String {
        let missing = match object.detail {
            Detail::Barrier { needed, arrived } => needed.saturating_sub(arrived),
            _ => 0,
        };
        let start = self.ended_of_same_start(threads, missing).and_then(|thread| thread.start_function.as_deref());
        let began = start.map_or_else(|| "the same start function".to_owned(), |name| format!("start function {name}"));
        match missing {
            1 => format!("the missing thread, with {began}, has ended"),
            _ => format!("the {missing} missing threads, with {began}, have ended"),
        }
    }
}

/// The signals whose handlers could wake threads.
pub(super) fn handler(signals: SignalSet) -> String {
    format!("only a signal handler could end that (of {signals})")
}
