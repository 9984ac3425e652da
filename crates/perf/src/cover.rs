//! Threads that two events tick for, counted once.
//!
//! While events are opened for the threads of a process, one that has its event already may create another,
//! which inherits the event; and one that has none yet may create one without. From outside the two look the
//! same, so both get an event of their own, and those that had inherited one have two. The samples tell which
//! event they come from: of each thread, and of the threads it creates, only one event's samples count.

use std::collections::HashMap;

/// After so many samples in a row from another event, the number of the thread must have got a new owner.
const PATIENCE: u32 = 8;
/// Threads to remember.
const MOST: usize = 100_000;

/// Which event counts for which thread. The default lets everything through.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// The thread that an event was opened for.
    opened_for: HashMap<u64, i32>,
    /// The root whose events count for a thread, and samples seen from others since its last one.
    roots: HashMap<i32, (i32, u32)>,
}

impl Cover {
    /// From the events: number, and the thread it was opened for.
    pub fn new(events: impl Iterator<Item = (u64, i32)>) -> Self {
        let opened_for: HashMap<_, _> = events.collect();
        let roots = opened_for.values().map(|&tid| (tid, (tid, 0))).collect();
        Self { opened_for, roots }
    }

    /// Whether a sample of thread `tid` from event `id` counts.
    pub fn counts(&mut self, tid: i32, id: u64) -> bool {
        let Some(&root) = self.opened_for.get(&id) else { return true };
        if self.roots.len() > MOST {
            self.roots.clear();
        }
        let (counted, others) = self.roots.entry(tid).or_insert((root, 0));
        if *counted == root {
            *others = 0;
            return true;
        }
        *others += 1;
        if *others >= PATIENCE {
            (*counted, *others) = (root, 0);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Cover;

    #[test]
    fn a_thread_with_two_events_counts_once() {
        // 10 was opened; it created 11 before that was opened too; 11 created 12, which has both events.
        let mut cover = Cover::new([(1, 10), (2, 10), (3, 11), (4, 11)].into_iter());
        for _ in 0..100 {
            assert!(cover.counts(10, 1));
            assert!(!cover.counts(11, 2) && cover.counts(11, 3));
            assert!(cover.counts(12, 4) && !cover.counts(12, 1));
        }
    }

    #[test]
    fn a_number_used_again_is_counted_again() {
        let mut cover = Cover::new([(1, 10), (3, 11)].into_iter());
        let counted = (0..20).filter(|_| cover.counts(11, 1)).count();
        assert_eq!(counted, 13);
    }

    #[test]
    fn nothing_is_held_back_by_default() {
        let mut cover = Cover::default();
        assert!(cover.counts(1, 1) && cover.counts(1, 2));
    }
}
