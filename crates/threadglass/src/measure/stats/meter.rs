//! The integrals of a process over time, from samples of the kernel's counters.

use super::averages::Averages;
use super::runnable::TaskMeter;
use super::task::{Task, Times};
use super::tasks::{KEPT, Tasks};
use crate::Lwp;
use crate::proc::{KernelState, SyscallFile};
use crate::target::Live;
use nix::errno::Errno;
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

/// Running or queued threads that are asked at each sample whether they have slept. More are judged by their counters
/// alone.
const ASKED: usize = 64;

/// What is looked at besides the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The state of threads that have just stopped moving: queued, or asleep?
    Counters,
    /// What every thread is blocked in.
    Calls,
}

/// The threads that ended during the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct EndedThreads {
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
    ended: EndedThreads,
    /// CPU clock of the process: at the start, and now. `None` where it cannot be read.
    clock: Option<(u64, u64)>,
    /// Twice the integral of the number of threads.
    lwps2: u128,
    /// How many threads may still be asked in this sample whether they have slept.
    asked: usize,
    pub(super) samples: u64,
    /// Where the process has tasks, and they are counted.
    pub(super) task_meter: Option<TaskMeter>,
}

impl Meter {
    pub(super) fn new(tasks: Tasks, depth: Depth) -> Result<Self, Errno> {
        let mut meter = Self {
            tasks,
            depth,
            epoch: Instant::now(),
            started: 0,
            now: 0,
            threads: BTreeMap::new(),
            ended: EndedThreads::default(),
            clock: None,
            lwps2: 0,
            asked: 0,
            samples: 0,
            task_meter: None,
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
            task.set_old();
        }
        meter.restart();
        Ok(meter)
    }

    /// Counts tasks as well from now on, if the process has any.
    pub(super) fn count_tasks(&mut self, live: &Live) {
        self.task_meter = TaskMeter::new(live, self.now);
    }

    /// Begins anew, from the last sample on.
    pub(super) fn restart(&mut self) {
        self.started = self.now;
        self.lwps2 = 0;
        self.samples = 0;
        self.ended = EndedThreads::default();
        self.clock = self.clock.map(|(_, now)| (now, now));
        for task in self.threads.values_mut() {
            task.restart(self.now);
        }
        if let Some(tasks) = &mut self.task_meter {
            tasks.restart(self.now);
        }
    }

    /// Reads all counters. `Err(ESRCH)` when the process has ended.
    pub(super) fn sample(&mut self) -> Result<(), Errno> {
        self.asked = ASKED;
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
        if let Some(tasks) = &mut self.task_meter {
            tasks.sample(now);
        }
        Ok(())
    }

    /// Whether nothing but the record of the process is left, which its parent has not yet collected.
    fn is_zombie(&mut self) -> bool {
        match self.threads.first_key_value() {
            Some((lwp, task)) if self.threads.len() == 1 && task.moved_at <= self.now => {
                self.tasks.state(*lwp).is_none_or(|(state, _)| state.has_ended())
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
        let many = self.threads.len() > KEPT;
        for (lwp, task) in &mut self.threads {
            match self.tasks.counters(&task.schedstat) {
                Ok(counters) => {
                    task.moved(now, counters);
                    // With many threads, those that sleep on are left alone.
                    if !many || task.is_lively(now) {
                        look(&mut self.tasks, self.depth, (now, span), (*lwp, task), &mut self.asked);
                    }
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
        let mut task = Task::new(schedstat, syscall, last, self.now, now);
        look(&mut self.tasks, self.depth, (now, span), (lwp, &mut task), &mut self.asked);
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
        let tasks = self.task_meter.as_ref().map_or(0, TaskMeter::waiting);
        Averages::new(u128::from(self.wall()), self.lwps2 / 2, running + delay, running).with_waiting_tasks(tasks)
    }
}

/// Finds out what a thread does. `span` is the time since the last sample, `asked` how many may still be asked
/// whether they have slept.
fn look(tasks: &mut Tasks, depth: Depth, (now, span): (u64, u64), (lwp, task): (Lwp, &mut Task), asked: &mut usize) {
    if depth == Depth::Counters && !task.is_lively(now) && !task.is_young() {
        return;
    }
    // One that has not run since is in the same call.
    if task.moved_at == now || task.call.is_none_or(|call| call == SyscallFile::Running) {
        task.call = task.syscall.as_ref().and_then(|file| tasks.call(file).ok());
    }
    let asleep = task.call.is_some_and(|call| call != SyscallFile::Running);
    let (running, sleeps) = match asleep {
        true => (false, None),
        // What the call says holds: the state is read later.
        false if *asked == 0 && task.call.is_some() => (true, None),
        false => {
            let state = tasks.state(lwp);
            let may_ask = *asked > 0;
            *asked = asked.saturating_sub(1);
            let running = state.is_some_and(|(state, _)| state == KernelState::Running);
            (running, state.filter(|_| may_ask).map(|(_, sleeps)| sleeps))
        }
    };
    task.saw((now, span), running, sleeps);
}
