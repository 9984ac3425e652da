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

impl std::ops::Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, kernel: self.kernel + other.kernel }
    }
}

/// The time of the processes that are recorded.
#[derive(Debug, Default)]
pub(super) struct UsedTime {
    /// What each had used at first, and when it was last looked at.
    known: HashMap<i32, (CpuTime, CpuTime)>,
    /// What those have used that are gone.
    gone: Option<CpuTime>,
}

impl UsedTime {
    /// Counts for process `pid` from now on.
    pub(super) fn begin(&mut self, pid: i32) {
        if let Some(now) = CpuTime::of(pid).filter(|_| self.known.len() < MOST) {
            self.known.insert(pid, (now, now));
        }
    }

    /// Takes note of the time so far. One that is new has begun meanwhile.
    pub(super) fn look(&mut self, pid: i32) {
        let has_room = self.known.len() < MOST || self.known.contains_key(&pid);
        if let Some(now) = CpuTime::of(pid).filter(|_| has_room) {
            self.known.entry(pid).or_default().1 = now;
        }
    }

    /// Takes note of the time of all that are known. Those that are gone are not asked again, but for `lasting`.
    pub(super) fn look_at_all(&mut self, lasting: i32) {
        let Self { known, gone } = self;
        known.retain(|pid, (from, to)| {
            let now = CpuTime::of(*pid);
            *to = now.unwrap_or(*to);
            if now.is_none() && *pid != lasting {
                *gone = Some(gone.unwrap_or_default() + to.since(*from));
            }
            now.is_some() || *pid == lasting
        });
    }

    /// What process `pid` has used.
    pub(super) fn of(&self, pid: i32) -> Option<CpuTime> {
        self.known.get(&pid).map(|(from, to)| to.since(*from))
    }

    /// What all have used; `None` where nothing is known.
    pub(super) fn total(&self) -> Option<CpuTime> {
        let times = self.known.values().map(|(from, to)| to.since(*from));
        times.chain(self.gone).reduce(std::ops::Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_that_is_gone_stays() {
        let time = |user| CpuTime { user, kernel: 1 };
        // No process has these numbers.
        let mut used =
            UsedTime { known: HashMap::from([(-1, (time(5), time(9))), (-2, (time(0), time(2)))]), gone: None };
        used.look_at_all(-1);
        used.look_at_all(-1);
        assert_eq!((used.known.len(), used.of(-1)), (1, Some(CpuTime { user: 4, kernel: 0 })));
        assert_eq!(used.total(), Some(CpuTime { user: 6, kernel: 0 }));
        assert_eq!(UsedTime::default().total(), None);
    }
}
