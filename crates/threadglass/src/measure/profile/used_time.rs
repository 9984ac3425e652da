//! CPU time that processes use while they are recorded, as the kernel counts it.

use crate::proc::parse_stat;
use std::collections::HashMap;

/// Processes that are asked for their time.
const MOST: usize = 4096;

/// CPU time in 100ths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    pub(super) user: u64,
    pub(super) kernel: u64,
}

impl CpuTime {
    /// Of process `pid` since it began.
    fn of(pid: i32) -> Option<Self> {
        let stat = parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Self { user: stat.utime, kernel: stat.stime })
    }

    fn since(self, earlier: Self) -> Self {
        let Self { user, kernel } = self;
        Self { user: user.saturating_sub(earlier.user), kernel: kernel.saturating_sub(earlier.kernel) }
    }
}

/// What each process had used at first, and when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct UsedTime(HashMap<i32, (CpuTime, CpuTime)>);

impl UsedTime {
    /// Counts for process `pid` from now on.
    pub(super) fn begin(&mut self, pid: i32) {
        if let Some(now) = CpuTime::of(pid).filter(|_| self.0.len() < MOST) {
            self.0.insert(pid, (now, now));
        }
    }

    /// Takes note of the time so far. One that is new has begun meanwhile.
    pub(super) fn look(&mut self, pid: i32) {
        if let Some(now) = CpuTime::of(pid).filter(|_| self.0.len() < MOST || self.0.contains_key(&pid)) {
            self.0.entry(pid).or_default().1 = now;
        }
    }

    /// Takes note of the time of all that are known.
    pub(super) fn look_at_all(&mut self) {
        let known: Vec<i32> = self.0.keys().copied().collect();
        known.into_iter().for_each(|pid| self.look(pid));
    }

    /// What process `pid` has used.
    pub(super) fn of(&self, pid: i32) -> Option<CpuTime> {
        self.0.get(&pid).map(|(from, to)| to.since(*from))
    }

    /// What all have used; `None` where nothing is known.
    pub(super) fn total(&self) -> Option<CpuTime> {
        let times = self.0.values().map(|(from, to)| to.since(*from));
        times.reduce(|a, b| CpuTime { user: a.user + b.user, kernel: a.kernel + b.kernel })
    }
}
