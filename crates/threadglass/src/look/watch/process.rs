//! What is known of one process that is watched, from its pulse alone.

use super::super::waits::{rests, waits_for_child, waits_for_others};
use crate::model::{LockWaits, ThreadStates, TroubleKind, WatchEvent, WatchedProcess};
use crate::proc::KernelState;
use crate::runtimes::FutexWait;
use crate::sys::cgroup;
use crate::target::{Live, ProcessPulse, ThreadPulse};
use crate::{Lwp, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A thread wants a CPU if it runs or is queued for this part of the time, and hardly gets one if it runs for less than that part of
/// what it wanted.
const WANTS: f64 = 0.9;
const HARDLY: f64 = 0.1;

/// A thread, and since when it has not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) pulse: ThreadPulse,
    /// The first look that saw it as it is.
    pub(super) since: Instant,
    /// In how many looks after that one it had not run.
    pub(super) looks: u32,
    /// For how long it must have stood to be worth a closer look.
    due: Duration,
}

/// Why a process is worth a closer look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// Threads have not run since the look before, and wait on words of memory.
    pub(super) words: bool,
    /// The same of those that wait for other processes.
    pub(super) others: bool,
    /// Threads have stood for long.
    pub(super) old: bool,
    /// Threads are stopped.
    pub(super) stopped: bool,
}

/// Trouble that a process is in.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// As it was told.
    pub(super) event: WatchEvent,
    /// Since when it is known.
    pub(super) since: Instant,
    /// The threads that do not go on.
    pub(super) members: BTreeSet<Lwp>,
}

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) about: WatchedProcess,
    pub(super) threads: BTreeMap<Lwp, Known>,
    /// Whether it may not be looked into.
    pub(super) is_denied: bool,
    /// Whether that was so when it was seen first, of its memory.
    is_closed: bool,
    pub(super) troubles: BTreeMap<TroubleKind, Trouble>,
    /// Trouble that one look has found, and no other one yet.
    pub(super) doubtful: BTreeMap<TroubleKind, (u64, BTreeSet<Lwp>)>,
    /// The last closer look, by its number.
    pub(super) looked_at: u64,
    /// Whether a closer look said that it has tasks.
    pub(super) has_tasks: bool,
    pub(super) locks: Vec<LockWaits>,
    pub(super) runnable: f64,
    pub(super) running: f64,
    /// When it was looked at last.
    at: Instant,
    /// Since when it hardly gets a CPU, and how long its quota had kept it from running then.
    starves: Option<(Instant, Option<u64>)>,
    /// How many of its threads do.
    starving: BTreeSet<Lwp>,
}

impl Process {
    pub(super) fn new(pid: Pid, pulse: &ProcessPulse, now: Instant, look: u64) -> Self {
        Self {
            about: WatchedProcess { pid, name: pulse.name.clone(), start_time: pulse.start_time },
            threads: BTreeMap::new(),
            is_denied: false,
            is_closed: Live::open(pid).is_ok_and(|live| live.denial().is_some()),
            troubles: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            looked_at: look,
            has_tasks: false,
            locks: Vec::new(),
            runnable: 0.0,
            running: 0.0,
            at: now,
            starves: None,
            starving: BTreeSet::new(),
        }
    }

    /// Takes note of what was read. `stuck` is for how long a thread must stand that may as well go on soon.
    pub(super) fn update(&mut self, pulse: ProcessPulse, now: Instant, stuck: Duration) {
        let passed = now.duration_since(self.at).as_nanos() as f64;
        self.at = now;
        self.about.name = pulse.name;
        self.is_denied = pulse.is_denied || self.is_closed;
        let before = std::mem::take(&mut self.threads);
        let (mut wanted_in_all, mut got_in_all) = (0.0, 0.0);
        self.starving.clear();
        for thread in pulse.threads {
            let last = before.get(&thread.lwp);
            let still = last.filter(|last| thread.is_still_since(&last.pulse));
            // What has not run is where it was; unless it was queued, or was woken and is.
            let known = still.filter(|last| last.pulse.state == thread.state && last.pulse.call == thread.call);
            let known = match known {
                Some(last) => Known { pulse: thread, looks: last.looks.saturating_add(1), ..*last },
                None => Known { pulse: thread, since: now, looks: 0, due: first_due(&thread, stuck) },
            };
            self.threads.insert(thread.lwp, known);
            let Some(last) = last.filter(|_| passed > 0.0) else { continue };
            let (wanted, got) = share(&last.pulse, &thread, passed);
            wanted_in_all += wanted;
            got_in_all += got;
            if wanted >= WANTS && got < HARDLY * wanted {
                self.starving.insert(thread.lwp);
            }
        }
        (self.runnable, self.running) = (wanted_in_all, got_in_all);
        match (self.starving.is_empty() || got_in_all >= HARDLY * wanted_in_all, self.starves) {
            (true, _) => self.starves = None,
            (false, None) => self.starves = Some((now, cgroup::throttled_us(self.about.pid))),
            (false, Some(_)) => {}
        }
    }

    /// Whether it is worth a closer look, and why.
    pub(super) fn suspicion(&self, now: Instant, stuck: Duration) -> Suspicion {
        let mut found = Suspicion::default();
        if self.is_denied {
            return found;
        }
        for thread in self.threads.values().filter(|thread| thread.looks > 0) {
            let age = now.duration_since(thread.since);
            if thread.pulse.state.is_stopped() {
                found.stopped = true;
            } else if age >= thread.due {
                found.old |= age >= stuck;
                found.words |= is_on_word(&thread.pulse);
                found.others |= waits_elsewhere(&thread.pulse);
            }
        }
        found
    }

    /// A closer look was taken: threads that stand are not worth another one soon.
    pub(super) fn was_looked_at(&mut self, now: Instant, look: u64, stuck: Duration) {
        self.looked_at = look;
        for thread in self.threads.values_mut().filter(|thread| thread.looks > 0) {
            if now.duration_since(thread.since) >= thread.due {
                thread.due = (thread.due * 2).max(stuck);
            }
        }
    }

    /// Threads in a state in which no signal wakes them, for as long as that.
    pub(super) fn unkillable(&self, now: Instant, least: Duration) -> BTreeSet<Lwp> {
        let is_deep = |known: &&Known| {
            let call = known.pulse.call.and_then(|call| call.call());
            let waits_for_child = call.is_some_and(|call| waits_for_child(&call));
            known.pulse.state == KernelState::DiskSleep && !waits_for_child
        };
        let old = |known: &&Known| known.looks > 0 && now.duration_since(known.since) >= least;
        self.threads.values().filter(is_deep).filter(old).map(|known| known.pulse.lwp).collect()
    }

    /// Threads that are stopped, and were so at the look before.
    pub(super) fn stopped(&self) -> BTreeSet<Lwp> {
        let stopped = self.threads.values().filter(|known| known.looks > 0 && known.pulse.state.is_stopped());
        stopped.map(|known| known.pulse.lwp).collect()
    }

    /// Whether all these threads are there and have not run since the look before.
    pub(super) fn stand(&self, lwps: &BTreeSet<Lwp>) -> bool {
        lwps.iter().all(|lwp| self.threads.get(lwp).is_some_and(|known| known.looks > 0))
    }

    /// For how long the first of these threads has stood; those that have run since have not.
    pub(super) fn stood(&self, lwps: &BTreeSet<Lwp>, now: Instant) -> Duration {
        let since = lwps.iter().filter_map(|lwp| self.threads.get(lwp)).map(|known| known.since).min();
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Those of `lwps` that have stood for as long as that.
    pub(super) fn standing(&self, lwps: impl Iterator<Item = Lwp>, now: Instant, least: Duration) -> BTreeSet<Lwp> {
        lwps.filter(|lwp| {
            let known = self.threads.get(lwp);
            known.is_some_and(|known| known.looks > 0 && now.duration_since(known.since) >= least)
        })
        .collect()
    }

    /// That it hardly gets a CPU, if that has been so for as long as that: the threads, in words, and for how long.
    pub(super) fn starves(&self, now: Instant, least: Duration) -> Option<(BTreeSet<Lwp>, String, Duration)> {
        let (since, throttled) = self.starves.filter(|(since, _)| now.duration_since(*since) >= least)?;
        let number = self.starving.len();
        let mut text = format!(
            "{number} {} a CPU and hardly get{} one: {:.1} wanted, {:.2} got",
            if number == 1 { "thread wants" } else { "threads want" },
            if number == 1 { "s" } else { "" },
            self.runnable,
            self.running
        );
        let quota = cgroup::throttled_us(self.about.pid).zip(throttled);
        if let Some(ms @ 1..) = quota.map(|(now, then)| now.saturating_sub(then) / 1000) {
            text += &format!("; the CPU quota of its control group kept it from running for {ms} ms");
        }
        Some((self.starving.clone(), text, now.duration_since(since)))
    }

    pub(super) fn starves_no_more(&self) -> bool {
        self.starves.is_none()
    }

    /// Whether threads are asleep on words of memory.
    pub(super) fn has_sleepers(&self) -> bool {
        self.threads.values().any(|known| known.pulse.call.is_some_and(|call| call.is_futex()))
    }

    pub(super) fn states(&self) -> ThreadStates {
        let mut states = ThreadStates::default();
        for known in self.threads.values() {
            let count = match known.pulse.state {
                KernelState::Running => &mut states.running,
                KernelState::DiskSleep => &mut states.unkillable,
                state if state.is_stopped() => &mut states.stopped,
                _ if known.pulse.call.is_some_and(|call| call.is_futex()) => &mut states.on_words,
                _ => &mut states.asleep,
            };
            *count += 1;
        }
        states
    }
}

/// Which part of the time a thread ran or was queued, and which part it ran.
fn share(before: &ThreadPulse, now: &ThreadPulse, passed: f64) -> (f64, f64) {
    let since = |now: u64, before: u64| now.saturating_sub(before) as f64 / passed;
    let got = since(now.counters.run_ns, before.counters.run_ns).min(1.0);
    // The time in the queue is counted when it is over.
    let was_queued = before.state == KernelState::Running && now.state == KernelState::Running;
    let queued = match was_queued && now.counters.timeslices == before.counters.timeslices && got == 0.0 {
        true => 1.0,
        false => since(now.counters.delay_ns, before.counters.delay_ns),
    };
    ((got + queued).min(1.0), got)
}

fn is_on_word(pulse: &ThreadPulse) -> bool {
    pulse.state == KernelState::Sleeping && pulse.call.is_some_and(|call| FutexWait::of(&call).is_some())
}

/// Whether a thread waits for somebody in another process; not for work that may come, a time or a signal.
fn waits_elsewhere(pulse: &ThreadPulse) -> bool {
    let call = pulse.call.and_then(|call| call.call());
    !matches!(pulse.state, KernelState::Running) && call.is_some_and(|call| !rests(&call) && waits_for_others(&call))
}

/// For how long a thread must stand to be worth a closer look at first. What has a time limit mostly ends by that.
fn first_due(pulse: &ThreadPulse, stuck: Duration) -> Duration {
    let is_timed = pulse.call.and_then(|call| FutexWait::of(&call)).is_some_and(|wait| wait.timed);
    if is_timed { stuck } else { Duration::ZERO }
}
