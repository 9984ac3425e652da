//! What is known of one thread from the samples of it.

use super::tasks::TaskFile;
use crate::proc::SyscallFile;
use crate::target::SchedCounters;

/// A running thread's counters move with every clock tick, which comes at least a hundred times a second.
/// A thread that the kernel calls running, and whose counters have not moved for this long, is queued.
const STANDS_STILL: u64 = 12_000_000;

/// A thread that ends before it was seen this often is a brief one. The counters of its last sample lack a large
/// part of its life; and those who wait longest are seen most, so others cannot be judged by them.
const BRIEF: u32 = 10;

/// Times of one thread since the start of the measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) run: u64,
    pub(super) delay: u64,
    /// For how long it has been there.
    pub(super) alive: u64,
}

/// A thread that has not slept since some sample: it ran or was queued all the time, booked or not.
#[derive(Clone, Copy, Debug)]
struct Awake {
    since: u64,
    /// Time it had run and been queued by then.
    ready: u64,
    /// How often it had gone to sleep.
    sleeps: u64,
}

/// One thread that exists.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) schedstat: TaskFile,
    pub(super) syscall: Option<TaskFile>,
    /// Counters at the start. The delay has what was owed then: queued already, and not yet booked.
    first: SchedCounters,
    last: SchedCounters,
    from: u64,
    /// When the counters were last seen to have moved, and when it was last seen asleep.
    pub(super) moved_at: u64,
    asleep_at: Option<u64>,
    /// Since when it has been queued, if it is.
    queued_since: Option<u64>,
    awake: Option<Awake>,
    /// How often it was seen, and the time between samples at the end of which it was running or queued.
    seen: u32,
    pub(super) ready: u64,
    /// What it was blocked in at the last sample, where that was asked for and permitted.
    pub(super) call: Option<SyscallFile>,
}

impl Task {
    /// One that was not there at the sample before, at `before`: all it has run and waited was after that. It came
    /// in the middle, unless it has run for longer.
    pub(super) fn new(
        schedstat: TaskFile,
        syscall: Option<TaskFile>,
        last: SchedCounters,
        before: u64,
        now: u64,
    ) -> Self {
        let busy = last.run_ns.saturating_add(last.delay_ns);
        let middle = before.saturating_add(now.saturating_sub(before) / 2);
        Self {
            schedstat,
            syscall,
            first: SchedCounters { run_ns: 0, delay_ns: 0, timeslices: 0 },
            last,
            from: middle.min(now.saturating_sub(busy)).max(before),
            moved_at: now,
            asleep_at: None,
            queued_since: None,
            awake: None,
            seen: 0,
            ready: 0,
            call: None,
        }
    }

    /// It was there before anybody looked.
    pub(super) fn set_old(&mut self) {
        self.seen = BRIEF;
    }

    /// For how long it has been queued, as far as that is not booked.
    fn pending(&self, now: u64) -> u64 {
        match self.awake {
            Some(awake) => awake.ready.saturating_add(now.saturating_sub(awake.since)).saturating_sub(self.booked()),
            None => self.queued_since.map_or(0, |since| now.saturating_sub(since)),
        }
    }

    fn booked(&self) -> u64 {
        self.last.run_ns.saturating_add(self.last.delay_ns)
    }

    /// Its times up to `now`. Nobody is queued for longer than it lives: of a thread that was queued when the
    /// measurement began, more is booked later.
    pub(super) fn times(&self, now: u64) -> Times {
        let alive = now.saturating_sub(self.from);
        let run = self.last.run_ns.saturating_sub(self.first.run_ns);
        let delay = self.last.delay_ns.saturating_add(self.pending(now)).saturating_sub(self.first.delay_ns);
        Times { run, delay: delay.min(alive.saturating_sub(run)), alive }
    }

    /// Takes new counters.
    pub(super) fn moved(&mut self, now: u64, counters: SchedCounters) {
        if counters != self.last {
            self.last = counters;
            self.moved_at = now;
            self.queued_since = None;
        }
    }

    /// Whether its state is worth asking for: it moves, or has just stopped moving. One that was seen asleep and
    /// has not moved since sleeps on.
    pub(super) fn is_lively(&self, now: u64) -> bool {
        let asleep = self.asleep_at.is_some_and(|at| at >= self.moved_at);
        self.moved_at == now || self.awake.is_some() || !asleep && self.queued_since.is_none()
    }

    /// Whether its state is worth asking for because it may be a brief one.
    pub(super) fn is_young(&self) -> bool {
        self.seen < BRIEF
    }

    /// Takes its state at `now`, `span` after the last sample, and, where it is known, how often it went to sleep.
    pub(super) fn saw(&mut self, (now, span): (u64, u64), running: bool, sleeps: Option<u64>) {
        self.seen = self.seen.saturating_add(1);
        if !running {
            self.asleep_at = Some(now);
            self.queued_since = None;
            self.awake = None;
            return;
        }
        self.ready = self.ready.saturating_add(span);
        if self.queued_since.is_none() && now.saturating_sub(self.moved_at) >= STANDS_STILL {
            self.queued_since = Some(self.moved_at.max(self.asleep_at.unwrap_or(0)));
        }
        match (self.awake, sleeps) {
            (Some(awake), Some(sleeps)) if awake.sleeps == sleeps => {
                // More is booked: it had been queued already when it was first seen awake.
                if self.pending(now) == 0 {
                    self.awake = Some(Awake { since: now, ready: self.booked(), sleeps });
                }
            }
            (_, Some(sleeps)) => {
                self.awake = None;
                let ready = self.booked().saturating_add(self.pending(now));
                self.awake = Some(Awake { since: now, ready, sleeps });
            }
            (_, None) => self.awake = None,
        }
    }

    /// Begins anew.
    pub(super) fn restart(&mut self, now: u64) {
        self.first = self.last;
        self.first.delay_ns = self.last.delay_ns.saturating_add(self.pending(now));
        self.from = now;
        self.ready = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(run_ns: u64, delay_ns: u64) -> SchedCounters {
        SchedCounters { run_ns, delay_ns, timeslices: 1 }
    }

    fn task(from: u64) -> Task {
        Task::new(TaskFile::Named(Default::default()), None, counters(0, 0), from, from)
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_queued_thread_is_known_before_its_delay_is_booked() {
        let mut task = task(0);
        task.moved(100 * MS, counters(100 * MS, 0));
        task.moved(105 * MS, counters(100 * MS, 0));
        task.saw((105 * MS, 0), true, None);
        assert_eq!(task.times(105 * MS).delay, 0, "may still run: the tick has not come");
        task.moved(120 * MS, counters(100 * MS, 0));
        task.saw((120 * MS, 0), true, None);
        assert_eq!(task.times(200 * MS), Times { run: 100 * MS, delay: 100 * MS, alive: 200 * MS });
        task.moved(210 * MS, counters(110 * MS, 95 * MS));
        assert_eq!(task.times(210 * MS), Times { run: 110 * MS, delay: 95 * MS, alive: 210 * MS });
    }

    #[test]
    fn one_that_has_not_slept_ran_or_was_queued() {
        let mut task = task(0);
        task.moved(10 * MS, counters(3 * MS, 7 * MS));
        task.saw((10 * MS, 0), true, Some(5));
        task.moved(30 * MS, counters(5 * MS, 8 * MS));
        task.saw((30 * MS, 0), true, Some(5));
        assert_eq!(task.times(30 * MS), Times { run: 5 * MS, delay: 25 * MS, alive: 30 * MS });
        // It has slept in between: what is booked is all that is known.
        task.moved(50 * MS, counters(6 * MS, 9 * MS));
        task.saw((50 * MS, 0), true, Some(6));
        assert_eq!(task.times(50 * MS), Times { run: 6 * MS, delay: 9 * MS, alive: 50 * MS });
        task.saw((60 * MS, 0), false, None);
        assert_eq!(task.times(60 * MS).delay, 9 * MS);
    }

    #[test]
    fn one_that_was_queued_before_is_ready_all_the_time_after() {
        let mut task = task(0);
        task.saw((10 * MS, 0), true, Some(5));
        task.restart(10 * MS);
        // Queued for 30 ms before it was seen first; that is booked now.
        task.moved(20 * MS, counters(5 * MS, 35 * MS));
        task.saw((20 * MS, 10 * MS), true, Some(5));
        assert_eq!(task.times(20 * MS), Times { run: 5 * MS, delay: 5 * MS, alive: 10 * MS });
        task.restart(20 * MS);
        task.moved(50 * MS, counters(6 * MS, 35 * MS));
        task.saw((50 * MS, 30 * MS), true, Some(5));
        assert_eq!(task.times(50 * MS), Times { run: MS, delay: 29 * MS, alive: 30 * MS });
    }

    #[test]
    fn a_sleeper_is_left_alone() {
        let mut task = task(0);
        task.moved(10 * MS, counters(MS, 0));
        assert!(task.is_lively(10 * MS));
        task.moved(30 * MS, counters(MS, 0));
        assert!(task.is_lively(30 * MS));
        task.saw((30 * MS, 0), false, Some(1));
        task.moved(60 * MS, counters(MS, 0));
        assert!(!task.is_lively(60 * MS));
        assert_eq!(task.times(60 * MS).delay, 0);
        task.moved(80 * MS, counters(2 * MS, 0));
        assert!(task.is_lively(80 * MS));
    }

    #[test]
    fn what_was_owed_at_the_start_is_not_counted() {
        let mut task = task(0);
        task.saw((20 * MS, 0), true, None);
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
