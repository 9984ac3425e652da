//! What one look may cost: bytes that are kept of what a target and its files claim, and time.
//!
//! Every size in a file or a table is somebody else's claim. Whoever makes a copy of such bytes takes a [`Share`] of
//! the budget first, and gives it back when the copy is dropped. Whoever loops over them asks now and then whether
//! the time [is up](Limits::is_over). What is left out for either reason is said, and becomes a gap of the look.

use crate::model::Gap;
use crate::sys::clock::all_own_cpu;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of files and tables of a target that are kept in memory at one time.
pub const MAX_BYTES: u64 = 384 << 20;
/// CPU time after which a look reads nothing more that it can do without.
pub const MAX_TIME: Duration = Duration::from_secs(6);
/// Things that are named as left out; more of them are only counted.
const MAX_NAMED: usize = 16;

/// The budget of looks at one target. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Limits(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: AtomicU64,
    look: Mutex<Look>,
}

#[derive(Debug, Default)]
struct Look {
    /// Calls of [`Limits::begin`] that have not ended.
    depth: usize,
    began: Option<(Instant, Duration)>,
    left_out: Vec<Gap>,
    unnamed: usize,
}

/// A look goes on as long as this lives.
#[derive(Debug)]
pub struct Running(Limits);

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    limits: Limits,
    bytes: u64,
}

impl Limits {
    fn look(&self) -> std::sync::MutexGuard<'_, Look> {
        self.0.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look, or a part of one that goes on already: its time runs from the first beginning to the last end.
    pub fn begin(&self) -> Running {
        let mut look = self.look();
        if look.depth == 0 {
            *look = Look { began: Some((Instant::now(), all_own_cpu())), ..Look::default() };
        }
        look.depth += 1;
        Running(self.clone())
    }

    /// Whether the look has cost enough. Time in which we did not run does not count: on a busy machine a look takes
    /// longer, and sees as much.
    pub fn is_over(&self) -> bool {
        let Some((began, cpu)) = self.look().began else { return false };
        began.elapsed() > MAX_TIME && all_own_cpu().saturating_sub(cpu) > MAX_TIME
    }

    /// A share of `bytes`; `None` if there is not so much left, or the time is up.
    pub fn share(&self, bytes: u64) -> Option<Share> {
        if self.is_over() {
            return None;
        }
        let fits = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= MAX_BYTES);
        self.0.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Share { limits: self.clone(), bytes })
    }

    /// Notes that something was left out, once.
    pub fn leave_out(&self, what: impl Into<String>, why: impl Into<String>) {
        let gap = Gap::whole(what, why);
        let mut look = self.look();
        if look.left_out.contains(&gap) {
        } else if look.left_out.len() < MAX_NAMED {
            look.left_out.push(gap);
        } else {
            look.unnamed += 1;
        }
    }

    /// What this look has left out so far.
    pub fn left_out(&self) -> Vec<Gap> {
        let look = self.look();
        let mut gaps = look.left_out.clone();
        if look.unnamed > 0 {
            let what = format!("{} other parts of the target's files", look.unnamed);
            gaps.push(Gap::whole(what, "a look keeps and decodes only so much of them"));
        }
        gaps
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut look = self.0.look();
        look.depth -= 1;
        if look.depth == 0 {
            look.began = None;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.limits.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_and_what_is_left_out_is_told_once() {
        let limits = Limits::default();
        let _look = limits.begin();
        let most = limits.share(MAX_BYTES - 1).unwrap();
        assert!(limits.share(2).is_none() && limits.share(u64::MAX).is_none());
        let rest = limits.clone().share(1).unwrap();
        drop((most, rest));
        assert!(limits.share(MAX_BYTES).is_some());
        for number in 0..100 {
            limits.leave_out(format!("table {}", number % 50), "too large");
        }
        let gaps = limits.left_out();
        assert_eq!(gaps.len(), MAX_NAMED + 1);
        assert!(gaps[MAX_NAMED].what.contains("68 other"), "{gaps:?}");
        let inner = limits.begin();
        drop(inner);
        assert_eq!(limits.left_out().len(), MAX_NAMED + 1, "a part of a look does not forget");
        drop(_look);
        let _next = limits.begin();
        assert_eq!(limits.left_out(), []);
    }
}
