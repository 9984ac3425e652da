//! A thread of ours that keeps an eye on a process while statistics are on.

use super::averages::Averages;
use super::meter::{Depth, Meter};
use super::tasks::Tasks;
use crate::sys::clock::own_cpu;
use crate::target::Live;
use nix::errno::Errno;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often threads are looked for, unless that costs too much.
const PERIOD: Duration = Duration::from_millis(20);
/// A sample may take this part of the time between two.
const SHARE: u32 = 50;
/// But at least once in this time.
const LONGEST: Duration = Duration::from_secs(1);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    meter: Meter,
    ended: bool,
    stop: bool,
}

/// Measures the averages of a process in the background. It reads `/proc` and nothing else: no routine of a
/// debugger's, and no memory, unless it is asked to count tasks.
pub struct Sampler {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    /// The process that made it. In one that was forked since, there is no worker, and its lock may be held
    /// for ever.
    owner: u32,
}

/// Why nothing can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplerError {
    /// The process has ended.
    #[error("the process has ended (nothing is left to measure)")]
    Ended,
    /// The kernel does not count.
    #[error("no schedstat in /proc (the kernel was built without CONFIG_SCHED_INFO)")]
    NoCounters,
    /// No thread or file can be had for it.
    #[error("cannot watch the process: {0} (too many threads or open files?)")]
    System(Errno),
}

impl From<Errno> for SamplerError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ESRCH | Errno::ENOENT => Self::Ended,
            Errno::ENOSYS => Self::NoCounters,
            errno => Self::System(errno),
        }
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl Sampler {
    /// Begins to measure `live`.
    pub fn start(live: &Live) -> Result<Self, SamplerError> {
        let meter = Meter::new(Tasks::of(live)?, Depth::Counters)?;
        let shared =
            Arc::new(Shared { state: Mutex::new(State { meter, ended: false, stop: false }), wake: Condvar::new() });
        let of_worker = shared.clone();
        let worker = std::thread::Builder::new()
            .name("tg-stats".to_owned())
            .spawn(move || work(&of_worker))
            .map_err(|_| SamplerError::System(Errno::EAGAIN))?;
        Ok(Self { shared, worker: Some(worker), owner: std::process::id() })
    }

    /// The same, and counts the tasks of the process, which are in its memory.
    pub fn start_with_tasks(live: &Live) -> Result<Self, SamplerError> {
        let sampler = Self::start(live)?;
        lock(&sampler.shared).meter.count_tasks(live);
        Ok(sampler)
    }

    /// The averages from the start, or the last reset, until now; until its end, if the process has ended.
    /// `None` in a process that was forked from the one that measures.
    pub fn averages(&self) -> Option<Averages> {
        let mut state = self.state()?;
        state.sample();
        Some(state.meter.averages())
    }

    /// Begins anew.
    pub fn reset(&self) -> Option<()> {
        let mut state = self.state()?;
        state.sample();
        state.meter.restart();
        Some(())
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        (self.owner == std::process::id()).then(|| lock(&self.shared))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let Some(mut state) = self.state() else {
            // Not even the record of the thread may be touched here: its memory was given to others.
            std::mem::forget(self.worker.take());
            return;
        };
        state.stop = true;
        drop(state);
        self.shared.wake.notify_all();
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

impl State {
    fn sample(&mut self) {
        if !self.ended {
            self.ended = self.meter.sample().is_err();
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(shared: &Shared) {
    // No signal of the host program is to be handled here.
    let _ = nix::sys::signal::SigSet::all().thread_block();
    let mut period = PERIOD;
    let mut state = lock(shared);
    while !state.stop && !state.ended {
        let woken = shared.wake.wait_timeout(state, period);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
        if state.stop {
            break;
        }
        let before = own_cpu();
        state.sample();
        period = (own_cpu().saturating_sub(before) * SHARE).clamp(PERIOD, LONGEST);
    }
}
