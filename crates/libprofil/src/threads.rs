//! A CPU-time timer for each thread of this process, found by looking again and again.

use crate::sys::process::gettid;
use crate::sys::timers::{self, Timer};
use perf::tasks;
use std::collections::{HashMap, HashSet};
use std::io;

/// All timers. Dropping it ends them; the handler of their signal stays and does nothing.
#[derive(Debug)]
pub(crate) struct Threads {
    signal: i32,
    period_ns: u64,
    timers: HashMap<i32, Timer>,
    paused: bool,
}

impl Threads {
    /// Starts timers for all threads but the calling one.
    pub fn start(rate: u32) -> io::Result<Self> {
        let signal = timers::begin()?;
        let period_ns = 1_000_000_000 / u64::from(rate.max(1));
        let mut threads = Self { signal, period_ns, timers: HashMap::new(), paused: false };
        match threads.look() {
            Some(error) if threads.timers.is_empty() => Err(error),
            _ => Ok(threads),
        }
    }

    /// Starts timers for threads that have come, and drops those of threads that have gone. Gives the last
    /// error; a thread that ended meanwhile is one.
    pub fn look(&mut self) -> Option<io::Error> {
        if self.paused {
            return None;
        }
        let own = gettid();
        let now = tasks(std::process::id() as i32).unwrap_or_else(|_| vec![std::process::id() as i32]);
        let now: HashSet<i32> = now.into_iter().collect();
        // A number can have got a new owner: the timer of the old one does not run.
        self.timers.retain(|tid, timer| now.contains(tid) && timer.runs());
        let mut last = None;
        for tid in now {
            if tid != own && !self.timers.contains_key(&tid) {
                match Timer::start(tid, self.signal, self.period_ns) {
                    Ok(timer) => drop(self.timers.insert(tid, timer)),
                    Err(error) => last = Some(error),
                }
            }
        }
        last
    }

    pub fn pause(&mut self) {
        self.paused = true;
        self.timers.values().for_each(|timer| drop(timer.set(0)));
    }

    pub fn resume(&mut self) {
        self.paused = false;
        self.look();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        timers::end();
    }
}
