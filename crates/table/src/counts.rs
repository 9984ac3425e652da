//! What was counted of an object, and of that the part since an earlier reading.

use crate::words::Word;
use crate::{HISTOGRAM, Key, Kind, SITES};

/// What can be counted: the later reading less the earlier one.
trait Counter {
    fn since(self, start: Self) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Counter for $type {
            fn since(self, start: Self) -> Self {
                self.saturating_sub(start)
            }
        })*
    };
}
number!(u32, u64);

/// Numbers of one kind of object. Every member is subtracted, but for those listed as states.
macro_rules! counts {
    ($name:ident, $about:literal, $($counter:ident: $type:ty),* $(; states $($state:ident: $of:ty),*)?) => {
        #[doc = $about]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)] // as the fields of the `..Body` structures
        pub struct $name {
            $(pub $counter: $type,)*
            $($(pub $state: $of,)*)?
        }

        impl Counter for $name {
            fn since(self, start: Self) -> Self {
                Self {
                    $($counter: self.$counter.since(start.$counter),)*
                    $($($state: self.$state,)*)?
                }
            }
        }
    };
}
counts!(LockCounts, "Of a mutex or spinlock. `ended` are the holds that have ended, timed or not.",
    lock: u64, ended: u64, hold_time: u64, holds: u32, sleep: u32, sleep_time: u64, try_: u32, try_fail: u32);
counts!(CondCounts, "Of a condition variable.",
    wait: u32, timedwait: u32, wait_time: u64, timedwait_time: u64, timeout: u32, signal: u32, broadcast: u32);
counts!(SideCounts, "One side of a rwlock.",
    lock: u32, sleep: u32, sleep_time: u64, try_: u32, try_fail: u32);
counts!(RwlockCounts, "Of a rwlock. `ended` are the write holds that have ended, timed or not.",
    read: SideCounts, write: SideCounts, ended: u64, hold_time: u64, holds: u32);
counts!(SemaCounts, "Of a semaphore. The extremes are always those since it was made.",
    wait: u32, sleep: u32, sleep_time: u64, try_: u32, try_fail: u32, post: u32; states max: u32, min: u32);
counts!(BarrierCounts, "Of a barrier.",
    wait: u32, sleep: u32, sleep_time: u64);

/// The numbers of an object, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Counts {
    Lock(LockCounts),
    Cond(CondCounts),
    Rwlock(RwlockCounts),
    Sema(SemaCounts),
    Barrier(BarrierCounts),
}

/// The statistics of one object. Times are in the unit of [`crate::decode::HeaderView::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What and where it is.
    pub key: Key,
    /// Its kind.
    pub kind: Kind,
    /// Number of its extra, or 0.
    pub extra: u32,
    /// Of locks: the thread that acquired it last, or 0.
    pub last: u32,
    /// The numbers.
    pub counts: Counts,
}

impl Record {
    /// The record of a mutex, with what its word has more. The word was read before the entry was.
    pub fn with(mut self, word: Word) -> Self {
        if let (Kind::Mutex, Counts::Lock(counts)) = (self.kind, &mut self.counts)
            && word.is_of(self.key)
            && word.ahead_of(counts.lock) != 0
        {
            let ahead = word.ahead_of(counts.lock);
            counts.lock = counts.lock.wrapping_add(ahead);
            counts.ended = counts.ended.wrapping_add(ahead);
            self.last = word.tid();
        }
        self
    }

    /// What was counted after `start`, an earlier reading of the same object.
    pub fn since(self, start: &Self) -> Self {
        let counts = match (self.counts, start.counts) {
            (Counts::Lock(now), Counts::Lock(start)) => Counts::Lock(now.since(start)),
            (Counts::Cond(now), Counts::Cond(start)) => Counts::Cond(now.since(start)),
            (Counts::Rwlock(now), Counts::Rwlock(start)) => Counts::Rwlock(now.since(start)),
            (Counts::Sema(now), Counts::Sema(start)) => Counts::Sema(now.since(start)),
            (Counts::Barrier(now), Counts::Barrier(start)) => Counts::Barrier(now.since(start)),
            (now, _) => now,
        };
        Self { counts, ..self }
    }
}

/// More on an object that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraView {
    /// Waits by duration; see [`crate::bucket`].
    pub histogram: [u32; HISTOGRAM],
    /// Return addresses of waiter and holder (or 0), and the time waited.
    pub sites: [(u64, u64, u64); SITES],
}

impl ExtraView {
    /// What was counted after `start`, an earlier reading of the same extra. Sites where nobody has waited since are
    /// left empty.
    pub fn since(self, start: &Self) -> Self {
        let Self { mut histogram, mut sites } = self;
        for (now, start) in histogram.iter_mut().zip(start.histogram) {
            *now = now.since(start);
        }
        for (now, start) in sites.iter_mut().zip(start.sites) {
            if *now == start {
                *now = (0, 0, 0);
            } else if (now.0, now.1) == (start.0, start.1) {
                now.2 = now.2.since(start.2);
            }
        }
        Self { histogram, sites }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UNIT;
    use crate::decode::{EXTRA_SIZE, entry, extra};
    extern crate std;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// An entry of which every number of 32 bits is `value`.
    fn filled(kind: Kind, value: u32) -> Record {
        let key = Key::new(0x1000, kind);
        let mut bytes = [0; 2 * UNIT];
        for word in bytes.chunks_exact_mut(4) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        bytes[..8].copy_from_slice(&key.0.to_le_bytes());
        entry(&bytes, key.0).expect("an entry")
    }

    /// Members of the innermost structures, with their values.
    fn members(counts: &Counts) -> Vec<(String, u64)> {
        let text = format!("{counts:?}").replace(['{', '}', '(', ')', ','], " ").replace(": ", "=");
        let pairs = text.split(' ').filter_map(|word| word.split_once('='));
        pairs.filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?))).collect()
    }

    #[test]
    fn every_member_is_subtracted() {
        let kinds = [
            (Kind::Mutex, 8),
            (Kind::Spin, 8),
            (Kind::Cond, 7),
            (Kind::Rwlock, 13),
            (Kind::Sema, 8),
            (Kind::Barrier, 3),
        ];
        for (kind, many) in kinds {
            let (start, now) = (filled(kind, 5), filled(kind, 8));
            let [was, is, since] = [start, now, now.since(&start)].map(|record| members(&record.counts));
            assert_eq!(since.len(), many, "members of {kind:?}: is the new one a counter or a state?");
            for (((name, was), (_, is)), (_, since)) in was.iter().zip(&is).zip(&since) {
                assert_ne!(was, is, "{kind:?} {name}");
                let is_state = kind == Kind::Sema && ["max", "min"].contains(&name.as_str());
                assert_eq!(*since, if is_state { *is } else { is - was }, "{kind:?} {name}");
            }
            assert!(members(&start.since(&now).counts).iter().all(|(name, n)| *n == 0 || name.starts_with('m')));
        }
    }

    #[test]
    fn waits_and_sites_are_subtracted() {
        let key = Key::new(0x1000, Kind::Mutex);
        let mut bytes = [0; EXTRA_SIZE];
        bytes[..8].copy_from_slice(&key.0.to_le_bytes());
        let mut start = extra(&bytes, key).expect("an extra");
        start.histogram[3] = 10;
        start.sites[0] = (1, 2, 100);
        start.sites[1] = (3, 0, 50);
        let mut now = start;
        now.histogram[3] = 11;
        now.histogram[5] = 4;
        now.sites[1].2 = 70;
        now.sites[2] = (5, 6, 7);
        let since = now.since(&start);
        assert_eq!((since.histogram[3], since.histogram[5]), (1, 4));
        assert_eq!(since.histogram.iter().sum::<u32>(), 5);
        assert_eq!(since.sites, [(0, 0, 0), (3, 0, 20), (5, 6, 7), (0, 0, 0), (0, 0, 0)]);
    }
}
