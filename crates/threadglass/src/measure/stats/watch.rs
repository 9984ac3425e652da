//! The microstates of every thread over intervals.

use super::locks::{Locks, Tally};
use super::meter::{Depth, Meter};
use super::tasks::Tasks;
use crate::Lwp;
use crate::look::Look;
use crate::look::threads::{Collected, collect_threads};
use crate::look::waits::Survey;
use crate::model::{Evidence, Gap, ProcessStats, SCHEMA, Stats, ThreadStats};
use crate::runtimes::glibc::requested_concurrency;
use crate::sys::clock::own_cpu;
use crate::sys::interrupt::Interrupt;
use crate::target::{Live, TargetError};
use nix::errno::Errno;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two samples of an interval that is not very short.
const PERIOD: Duration = Duration::from_millis(20);
/// And of one that is.
const SHORTEST: Duration = Duration::from_millis(5);
/// A sample may take this part of the time between two, unless less is wanted.
const SHARE: u32 = 10;
/// The part that it may take where the watch goes on for long, and is not what the user waits for.
const GENTLE_SHARE: u32 = 300;

/// What is found out about a process before it is watched.
#[derive(Debug)]
pub struct Known(Collected);

impl Known {
    /// Looks at `live`.
    pub fn of(live: &Live) -> Result<Self, TargetError> {
        collect_threads(&Look::new(live)).map(Self)
    }
}

/// Watches the threads of a process, one interval after the other.
pub struct Watch<'a> {
    live: &'a Live,
    look: &'a Collected,
    meter: Meter,
    /// `None` where it may not be read what threads are blocked in.
    locks: Option<Locks<'a>>,
    share: u32,
    names: bool,
    ended: bool,
}

impl<'a> Watch<'a> {
    /// Begins to watch `live`, of which this is known already.
    pub fn new(live: &'a Live, Known(look): &'a Known) -> Result<Self, TargetError> {
        let failed = |errno| match errno {
            Errno::ESRCH | Errno::ENOENT => TargetError::Exited(live.pid()),
            errno => TargetError::Proc { what: format!("/proc/{}/task/*/schedstat", live.pid()), errno },
        };
        let tasks = Tasks::of(live).map_err(failed)?;
        let locks = live
            .denial()
            .is_none()
            .then(|| Locks::new(Survey::new(&Look::new(live), look.libc(), &look.snapshot.threads)));
        let mut meter = Meter::new(tasks, Depth::Calls).map_err(failed)?;
        meter.count_tasks(live);
        Ok(Self { live, look, meter, locks, share: SHARE, names: true, ended: false })
    }

    /// The same with fewer samples where there are many threads, and without their names: for who watches all day, and looks at
    /// the threads besides.
    pub fn gently(self) -> Self {
        Self { share: GENTLE_SHARE, names: false, ..self }
    }

    /// Whether the process has ended.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// Watches for `interval`, which begins where the last one ended; for less if we are asked to stop or the
    /// process ends.
    pub fn interval(&mut self, interval: Duration, interrupt: &Interrupt) -> Result<Stats, TargetError> {
        self.interval_by(interval, |time| interrupt.wait(time).is_some())
    }

    /// The same; `wait` waits for a time, and says whether the interval is to end with it.
    pub fn interval_by(
        &mut self,
        interval: Duration,
        mut wait: impl FnMut(Duration) -> bool,
    ) -> Result<Stats, TargetError> {
        self.meter.restart();
        if let Some(locks) = &mut self.locks {
            locks.forget();
        }
        let mut tallies: HashMap<Lwp, Tally> = HashMap::new();
        let usual = (interval / 50).clamp(SHORTEST, PERIOD);
        let mut period = usual;
        let started = Instant::now();
        loop {
            let left = interval.saturating_sub(started.elapsed());
            let nap = period.min(left);
            let asked = wait(nap);
            let before = own_cpu();
            self.ended = self.meter.sample().is_err();
            if self.ended {
                break;
            }
            self.tally(&mut tallies, started.elapsed());
            period = usual.max(own_cpu().saturating_sub(before) * self.share);
            if nap == left || asked {
                break;
            }
        }
        if self.meter.wall() == 0 {
            return Err(TargetError::Exited(self.live.pid()));
        }
        if !self.ended {
            // Another program by now, whose memory is not what it was.
            self.live.check_identity()?;
        }
        Ok(self.report(&tallies))
    }

    fn tally(&mut self, tallies: &mut HashMap<Lwp, Tally>, passed: Duration) {
        let Some(locks) = &mut self.locks else { return };
        let mut sleepers = Vec::new();
        for (lwp, task) in self.meter.threads() {
            let Some(call) = task.call else { continue };
            tallies.entry(lwp).or_default().add(&call);
            sleepers.push((lwp, call));
        }
        let meter = &mut self.meter;
        locks.learn(sleepers, passed, |lwp| meter.call_now(lwp));
    }

    fn report(&mut self, tallies: &HashMap<Lwp, Tally>) -> Stats {
        let wall = self.meter.wall() as f64;
        let percent = |time: f64| round(time * 100.0 / wall, 2);
        let mut gaps = Vec::new();
        let mut threads = Vec::new();
        for (lwp, task) in self.meter.threads() {
            let times = self.meter.times(task);
            let run = times.run.min(times.alive) as f64;
            let asleep = (times.alive as f64 - run - times.delay as f64).max(0.0);
            let share = self.locks.as_ref().zip(tallies.get(&lwp)).map(|(locks, tally)| locks.share(tally));
            if let Some((_, untold)) = share
                && untold * asleep / wall > 0.01
            {
                let why = "the kind of the lock is not known, so the wait is counted as sleep";
                Gap::of_thread(&mut gaps, "waits for locks", why, lwp);
            }
            // One that came with the last sample was never looked at.
            let lock = self.locks.as_ref().map(|_| share.map_or(0.0, |(share, _)| share * asleep));
            threads.push(ThreadStats {
                lwp,
                name: None,
                cpu: percent(run),
                runqueue: percent(times.delay as f64),
                lock: lock.map(percent),
                sleep: percent(asleep - lock.unwrap_or(0.0)),
            });
        }
        if let Some(denial) = self.live.denial() {
            gaps.push(Gap::whole("waits for locks", denial.to_string()));
        }
        if self.ended {
            gaps.push(Gap::whole("the rest of the interval", "the process ended"));
        }
        for thread in threads.iter_mut().filter(|_| self.names) {
            thread.name = self.meter.name(thread.lwp);
        }
        threads.sort_by(busiest_first);
        let averages = self.meter.averages();
        let (ended, ended_run) = self.meter.ended();
        let tasks = self.meter.task_meter.as_ref();
        let (nthreads, r_concurrency) = match tasks {
            Some(tasks) => (
                usize::try_from(tasks.number()).unwrap_or(usize::MAX),
                tasks.concurrency().and_then(|number| i32::try_from(number).ok()),
            ),
            None => (threads.len(), requested_concurrency(self.live, self.live)),
        };
        let process = ProcessStats {
            tasks_of: tasks.map(|tasks| tasks.names()).unwrap_or_default(),
            nthreads,
            r_concurrency,
            nrunnable: round(averages.nrunnable(), 4),
            a_concurrency: round(averages.a_concurrency(), 4),
            nlwps: round(averages.nlwps(), 4),
            nidle: round(averages.nidle(), 4),
            ended,
            ended_cpu: percent(ended_run as f64),
        };
        Stats {
            schema: SCHEMA,
            target: self.look.snapshot.target.clone(),
            taken_at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            pause_us: 0,
            interval_ms: self.meter.wall() / 1_000_000,
            samples: self.meter.samples,
            evidence: Evidence::Derived,
            lock_evidence: if self.locks.is_some() { Evidence::Inferred } else { Evidence::Unknown },
            process,
            threads,
            gaps,
        }
    }
}

fn busiest_first(a: &ThreadStats, b: &ThreadStats) -> Ordering {
    let busy = |thread: &ThreadStats| [thread.cpu, thread.runqueue, thread.lock.unwrap_or(0.0)];
    let by_time = busy(a).iter().zip(busy(b)).map(|(a, b)| b.total_cmp(a)).find(|order| order.is_ne());
    by_time.unwrap_or(Ordering::Equal).then(a.lwp.cmp(&b.lwp))
}

/// Rounded, so that what is printed has no more digits than it has meaning. Keeps the order of numbers.
fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
