//! The integrals of a process over time, from samples of the kernel's counters.

use super::averages::Averages;
use super::tasks::{TaskFile, Tasks};
use crate::Lwp;
use crate::proc::{KernelState, SyscallFile};
use crate::target::SchedCounters;
use nix::errno::Errno;
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

/// A running thread's counters move with every clock tick, which comes at least a hundred times a second.
/// One that runs by the kernel's word and has not moved for so long is queued.
const STANDS_STILL: u64 = 12_000_000;

/// A thread that ends before it was seen so often is a brief one. The counters of its last sample lack a large
/// part of its life; and those who wait longest are seen most, so others cannot be judged by them.
const BRIEF: u32 = 10;

/// What is looked at besides the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The state of threads that have just stopped moving: queued, or asleep?
    Counters,
    /// What every thread is blocked in.
    Calls,
}

/// Times of one thread since the start of the measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) run: u64,
    pub(super) delay: u64,
    /// For how long it has been there.
    pub(super) alive: u64,
}

/// One thread that exists.
#[derive(Debug)]
pub(super) struct Task {
    schedstat: TaskFile,
    syscall: Option<TaskFile>,
    /// Counters at the start. The delay has what was owed then: queued already, and not yet booked.
    first: SchedCounters,
    last: SchedCounters,
    from: u64,
    /// When the counters were last seen to have moved, and when it was last seen asleep.
    moved_at: u64,
    asleep_at: Option<u64>,
    /// Since when it has been queued, if it is.
    queued_since: Option<u64>,
    /// How often it was seen, and the time between samples at the end of which it was running or queued.
    seen: u32,
    ready: u64,
    /// What it was blocked in at the last sample, where that was asked for and permitted.
    pub(super) call: Option<SyscallFile>,
}

impl Task {
    fn pending(&self, now: u64) -> u64 {
        self.queued_since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Its times up to `now`. Nobody is queued for longer than it lives: of a thread that was queued when the
    /// measurement began, more is booked later.
    pub(super) fn times(&self, now: u64) -> Times {
        let alive = now.saturating_sub(self.from);
        let run = self.last.run_ns.saturating_sub(self.first.run_ns);
        let delay = self.last.delay_ns.saturating_add(self.pending(now)).saturating_sub(self.first.delay_ns);
        Times { run, delay: delay.min(alive.saturating_sub(run)), alive }
    }

    /// Takes new counters, and tells whether its state is wanted.
    fn moved(&mut self, now: u64, counters: SchedCounters) -> bool {
        if counters != self.last {
            self.last = counters;
            self.moved_at = now;
            self.queued_since = None;
            return false;
        }
        // A queued thread stays so until it has run, and then its counters move.
        let asleep = self.asleep_at.is_some_and(|at| at >= self.moved_at);
        self.queued_since.is_none() && !asleep && now.saturating_sub(self.moved_at) >= STANDS_STILL
    }

    /// Whether its state is worth asking for because it may be a brief one.
    fn is_young(&self) -> bool {
        self.seen < BRIEF
    }

    fn is_running(&mut self, now: u64, running: bool) {
        if !running {
            self.asleep_at = Some(now);
            self.queued_since = None;
        } else if self.queued_since.is_none() && now.saturating_sub(self.moved_at) >= STANDS_STILL {
            self.queued_since = Some(self.moved_at.max(self.asleep_at.unwrap_or(0)));
        }
    }

    fn restart(&mut self, now: u64) {
        self.first = self.last;
        self.first.delay_ns = self.last.delay_ns.saturating_add(self.pending(now));
        self.from = now;
        self.ready = 0;
    }
}

/// The threads that ended during the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    count: u64,
    /// By the counters of those that were there for long, up to the last sample of each.
    run: u64,
    delay: u64,
    /// Of the brief ones: by counters, and by the samples in which they were running or queued.
    brief_run: u64,
    brief_ready: u64,
}

/// Measures one process from [`Meter::new`] or [`Meter::restart`] on.
#[derive(Debug)]
pub(super) struct Meter {
    tasks: Tasks,
    depth: Depth,
    epoch: Instant,
    started: u64,
    now: u64,
    threads: BTreeMap<Lwp, Task>,
    ended: Ended,
    /// CPU clock of the process: at the start, and now. `None` where it cannot be read.
    clock: Option<(u64, u64)>,
    /// Twice the integral of the number of threads.
    lwps2: u128,
    pub(super) samples: u64,
}

impl Meter {
    /// Begins to measure.
    pub(super) fn new(tasks: Tasks, depth: Depth) -> Result<Self, Errno> {
        let mut meter = Self {
            tasks,
            depth,
            epoch: Instant::now(),
            started: 0,
            now: 0,
            threads: BTreeMap::new(),
            ended: Ended::default(),
            clock: None,
            lwps2: 0,
            samples: 0,
        };
        // The leader has counters whatever it does, if this kernel has any.
        meter.sample()?;
        if meter.threads.is_empty() {
            return Err(Errno::ENOSYS);
        }
        if meter.is_zombie() {
            return Err(Errno::ESRCH);
        }
        // None of these is new.
        for task in meter.threads.values_mut() {
            task.seen = BRIEF;
        }
        meter.restart();
        Ok(meter)
    }

    /// Begins anew, from the last sample on.
    pub(super) fn restart(&mut self) {
        self.started = self.now;
        self.lwps2 = 0;
        self.samples = 0;
        self.ended = Ended::default();
        self.clock = self.clock.map(|(_, now)| (now, now));
        for task in self.threads.values_mut() {
            task.restart(self.now);
        }
    }

    /// Reads all counters. `Err(ESRCH)` when the process has ended.
    pub(super) fn sample(&mut self) -> Result<(), Errno> {
        let (now, clock) = self.clocks();
        let span = now.saturating_sub(self.now);
        let before = self.threads.len();
        let gone = self.read_known(now, span);
        let changed = gone || self.threads.is_empty() || self.tasks.count() != Some(self.threads.len());
        if changed {
            self.take_new(now, span)?;
        }
        if let Some(clock) = clock {
            // The threads were there after it was read, so it was this process's.
            let start = self.clock.map_or(clock, |(start, _)| start);
            self.clock = Some((start, clock.max(start)));
        }
        if self.is_zombie() {
            return Err(Errno::ESRCH);
        }
        self.lwps2 += u128::from(span) * (before + self.threads.len()) as u128;
        self.now = now;
        self.samples += 1;
        Ok(())
    }

    /// Whether nothing but the record of the process is left, which its parent has not yet collected.
    fn is_zombie(&mut self) -> bool {
        match self.threads.first_key_value() {
            Some((lwp, task)) if self.threads.len() == 1 && task.moved_at <= self.now => {
                self.tasks.state(*lwp).is_none_or(KernelState::has_ended)
            }
            _ => false,
        }
    }

    /// The time, and the CPU clock of the process at that time.
    fn clocks(&self) -> (u64, Option<u64>) {
        /// Longer between the two readings, and we have lost the CPU in between.
        const AT_ONCE: u64 = 50_000;
        for _ in 0..3 {
            let before = self.elapsed();
            let clock = self.tasks.process_clock();
            if self.elapsed() - before < AT_ONCE {
                return (before, clock);
            }
        }
        (self.elapsed(), self.tasks.process_clock())
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads the threads that are known; whether some have ended.
    fn read_known(&mut self, now: u64, span: u64) -> bool {
        let mut gone = Vec::new();
        for (lwp, task) in &mut self.threads {
            match self.tasks.counters(&task.schedstat) {
                Ok(counters) => {
                    let wanted = task.moved(now, counters);
                    look(&mut self.tasks, self.depth, (now, span), *lwp, task, wanted);
                }
                Err(_) => gone.push(*lwp),
            }
        }
        for lwp in &gone {
            self.end(*lwp);
        }
        !gone.is_empty()
    }

    /// A thread has ended since the last sample.
    fn end(&mut self, lwp: Lwp) {
        let Some(task) = self.threads.remove(&lwp) else { return };
        let times = task.times(self.now);
        self.ended.count += 1;
        if task.is_young() {
            self.ended.brief_run = self.ended.brief_run.saturating_add(times.run);
            self.ended.brief_ready = self.ended.brief_ready.saturating_add(task.ready);
        } else {
            self.ended.run = self.ended.run.saturating_add(times.run);
            self.ended.delay = self.ended.delay.saturating_add(times.delay);
        }
        self.tasks.close(task.schedstat);
        if let Some(file) = task.syscall {
            self.tasks.close(file);
        }
    }

    /// Finds threads that have come since the last sample, and those that went unnoticed.
    fn take_new(&mut self, now: u64, span: u64) -> Result<(), Errno> {
        let listed = self.tasks.list()?;
        if listed.is_empty() {
            return Err(Errno::ESRCH);
        }
        let listed: HashSet<Lwp> = listed.into_iter().collect();
        let missing: Vec<Lwp> = self.threads.keys().copied().filter(|lwp| !listed.contains(lwp)).collect();
        for lwp in missing {
            self.end(lwp);
        }
        for lwp in listed {
            if !self.threads.contains_key(&lwp)
                && let Some(task) = self.begin(lwp, now, span)
            {
                self.threads.insert(lwp, task);
            }
        }
        Ok(())
    }

    fn begin(&mut self, lwp: Lwp, now: u64, span: u64) -> Option<Task> {
        let schedstat = self.tasks.open(lwp, "schedstat").ok()?;
        let Ok(last) = self.tasks.counters(&schedstat) else {
            self.tasks.close(schedstat);
            return None;
        };
        let syscall = match self.depth {
            Depth::Counters => None,
            Depth::Calls => self.tasks.open(lwp, "syscall").ok(),
        };
        // All it has run and waited was after the last sample, when it was not there. It came in the middle,
        // unless it has run for longer than that.
        let busy = last.run_ns.saturating_add(last.delay_ns);
        let from = (self.now + (now - self.now) / 2).min(now.saturating_sub(busy)).max(self.now);
        let zero = SchedCounters { run_ns: 0, delay_ns: 0, timeslices: 0 };
        let mut task = Task {
            schedstat,
            syscall,
            first: zero,
            last,
            from,
            moved_at: now,
            asleep_at: None,
            queued_since: None,
            seen: 0,
            ready: 0,
            call: None,
        };
        look(&mut self.tasks, self.depth, (now, span), lwp, &mut task, false);
        Some(task)
    }

    /// The time measured so far, in nanoseconds.
    pub(super) fn wall(&self) -> u64 {
        self.now.saturating_sub(self.started)
    }

    /// The threads that exist, by LWP.
    pub(super) fn threads(&self) -> impl Iterator<Item = (Lwp, &Task)> {
        self.threads.iter().map(|(lwp, task)| (*lwp, task))
    }

    /// What a thread is blocked in now.
    pub(super) fn call_now(&mut self, lwp: Lwp) -> Option<SyscallFile> {
        let file = self.threads.get(&lwp)?.syscall.as_ref()?;
        self.tasks.call(file).ok()
    }

    /// Name of a thread now.
    pub(super) fn name(&mut self, lwp: Lwp) -> Option<String> {
        self.tasks.name(lwp)
    }

    /// Times of a thread up to the last sample.
    pub(super) fn times(&self, task: &Task) -> Times {
        task.times(self.now)
    }

    /// How many threads have ended, and the CPU time of those and of others that were never seen.
    pub(super) fn ended(&self) -> (u64, u64) {
        let living: u64 = self.threads.values().map(|task| task.times(self.now).run).sum();
        let by_counters = self.ended.run.saturating_add(self.ended.brief_run);
        (self.ended.count, self.clock.map_or(by_counters, |(from, to)| (to - from).saturating_sub(living)))
    }

    /// The averages up to the last sample.
    pub(super) fn averages(&self) -> Averages {
        let (mut run, mut delay) = (u128::from(self.ended.run), u128::from(self.ended.delay));
        for task in self.threads.values() {
            let times = task.times(self.now);
            run += u128::from(times.run);
            delay += u128::from(times.delay);
        }
        let by_counters = run + u128::from(self.ended.brief_run);
        let running = self.clock.map_or(by_counters, |(from, to)| u128::from(to - from));
        // What is left of the clock is that of brief threads, seen and unseen.
        let brief_run = running.saturating_sub(run);
        delay += u128::from(self.ended.brief_ready).saturating_sub(brief_run);
        Averages::new(u128::from(self.wall()), self.lwps2 / 2, running + delay, running)
    }
}

/// Finds out what a thread does, if that is wanted. `span` is the time since the last sample.
fn look(tasks: &mut Tasks, depth: Depth, (now, span): (u64, u64), lwp: Lwp, task: &mut Task, wanted: bool) {
    task.call = match (depth, &task.syscall) {
        (Depth::Calls, Some(file)) => tasks.call(file).ok(),
        _ => None,
    };
    let running = match (task.call, depth) {
        (Some(call), _) => call == SyscallFile::Running,
        (None, Depth::Counters) if !wanted && !task.is_young() => return,
        (None, _) => tasks.state(lwp) == Some(KernelState::Running),
    };
    task.seen = task.seen.saturating_add(1);
    if running {
        task.ready = task.ready.saturating_add(span);
    }
    task.is_running(now, running);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(run_ns: u64, delay_ns: u64) -> SchedCounters {
        SchedCounters { run_ns, delay_ns, timeslices: 1 }
    }

    fn task(from: u64) -> Task {
        Task {
            schedstat: TaskFile::Named(Default::default()),
            syscall: None,
            first: counters(0, 0),
            last: counters(0, 0),
            from,
            moved_at: from,
            asleep_at: None,
            queued_since: None,
            seen: 0,
            ready: 0,
            call: None,
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_queued_thread_is_known_before_its_delay_is_booked() {
        let mut task = task(0);
        assert!(!task.moved(100 * MS, counters(100 * MS, 0)));
        assert!(!task.moved(105 * MS, counters(100 * MS, 0)), "may still run: the tick has not come");
        assert!(task.moved(120 * MS, counters(100 * MS, 0)));
        task.is_running(120 * MS, true);
        assert_eq!(task.times(200 * MS), Times { run: 100 * MS, delay: 100 * MS, alive: 200 * MS });
        assert!(!task.moved(200 * MS, counters(100 * MS, 0)), "known to be queued");
        task.moved(210 * MS, counters(110 * MS, 95 * MS));
        assert_eq!(task.times(210 * MS), Times { run: 110 * MS, delay: 95 * MS, alive: 210 * MS });
    }

    #[test]
    fn a_sleeper_is_asked_once() {
        let mut task = task(0);
        task.moved(10 * MS, counters(MS, 0));
        assert!(task.moved(30 * MS, counters(MS, 0)));
        task.is_running(30 * MS, false);
        assert!(!task.moved(60 * MS, counters(MS, 0)));
        assert_eq!(task.times(60 * MS).delay, 0);
    }

    #[test]
    fn what_was_owed_at_the_start_is_not_counted() {
        let mut task = task(0);
        task.moved(20 * MS, counters(0, 0));
        task.is_running(20 * MS, true);
        task.restart(1000 * MS);
        assert_eq!(task.times(1000 * MS), Times::default());
        assert_eq!(task.times(1100 * MS).delay, 100 * MS);
        task.moved(1200 * MS, counters(50 * MS, 1150 * MS));
        assert_eq!(task.times(1200 * MS), Times { run: 50 * MS, delay: 150 * MS, alive: 200 * MS });
    }

    #[test]
    fn nobody_is_queued_for_longer_than_it_lives() {
        let mut task = task(500 * MS);
        task.moved(600 * MS, counters(20 * MS, 5000 * MS));
        assert_eq!(task.times(600 * MS), Times { run: 20 * MS, delay: 80 * MS, alive: 100 * MS });
    }
}
