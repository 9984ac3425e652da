//! What one look may cost: bytes that are kept of what a target and its files claim, and time.
//!
//! Every size in a file or a table is somebody else's claim. Whoever makes a copy of such bytes takes a [`Share`] of
//! the budget first, and gives it back when the copy is dropped. Whoever loops over them asks now and then whether
//! the time [is up](Limits::is_over). What is left out for either reason is said, and becomes a gap of the look.

use crate::model::Gap;
use crate::sys::clock::all_own_cpu;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes of files and tables of a target that are kept in memory at one time.
pub const MAX_BYTES: u64 = 384 << 20;
/// CPU time after which a look reads nothing more that it can do without.
pub const MAX_TIME: Duration = Duration::from_secs(6);
/// Things that are named as left out; more of them are only counted.
const MAX_NAMED: usize = 16;
/// How often the time is looked at.
const CHECK: Duration = Duration::from_millis(5);

/// Why something is missing when the time is up.
pub(crate) const NO_TIME: &str = "the look used its 6 s of CPU time";
const OUT_OF_TIME: &str = "the look used its 6 s of CPU time: names, lines, stacks or locks are missing (the files or \
                           the memory of the process are very large, or made to keep the tool busy)";
const TOO_MUCH: &str = "one look decodes only a part of them";

/// The budget of looks at one target. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Limits(Arc<Budget>);

#[derive(Debug, Default)]
struct Budget {
    held: AtomicU64,
    leaves_out_texts: AtomicBool,
    look: Mutex<LookState>,
    /// What was read once of a file and is still used, by the file.
    read: Mutex<HashMap<FileKey, Weak<dyn Any + Send + Sync>>>,
}

/// Which file, and which state of it: device, inode, length, time of the last change.
type FileKey = (u64, u64, u64, i64);

#[derive(Debug, Default)]
struct LookState {
    /// Calls of [`Limits::begin`] that have not ended.
    depth: usize,
    clock: Option<LookClock>,
    left_out: Vec<Gap>,
    unnamed: usize,
    /// What was read once for the whole look.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
}

/// The time of a look.
#[derive(Debug)]
struct LookClock {
    /// How much CPU time we will have used when it is over.
    end: Duration,
    /// When to ask again: a clock of CPU time costs a system call.
    next: Instant,
    is_over: bool,
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
    fn look(&self) -> std::sync::MutexGuard<'_, LookState> {
        self.0.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look, or a part of one that goes on already: its time runs from the first beginning to the last end.
    pub fn begin(&self) -> Running {
        self.begin_within(MAX_TIME)
    }

    /// The same with another limit of CPU time, if it is the first beginning.
    pub(crate) fn begin_within(&self, time: Duration) -> Running {
        let mut look = self.look();
        if look.depth == 0 {
            let clock = LookClock { end: all_own_cpu() + time, next: Instant::now() + CHECK, is_over: false };
            *look = LookState { clock: Some(clock), ..LookState::default() };
        }
        look.depth += 1;
        Running(self.clone())
    }

    /// Whether the look has cost enough. Time in which we did not run does not count: on a busy machine a look takes
    /// longer, and sees as much.
    pub fn is_over(&self) -> bool {
        let mut look = self.look();
        let Some(clock) = &mut look.clock else { return false };
        let now = Instant::now();
        if clock.is_over || now < clock.next {
            return clock.is_over;
        }
        clock.next = now + CHECK;
        clock.is_over = all_own_cpu() > clock.end;
        let is_over = clock.is_over;
        if is_over {
            // In front of all others: it explains more than any of them.
            look.left_out.insert(0, Gap::whole("everything that the look had no time for", OUT_OF_TIME));
        }
        is_over
    }

    /// A share of `bytes`; `None` if less is left, or the time is up.
    pub fn share(&self, bytes: u64) -> Option<Share> {
        if self.is_over() {
            return None;
        }
        let mut share = Share { limits: self.clone(), bytes: 0 };
        share.grow(bytes).then_some(share)
    }

    /// From now on no text is taken from the memory of the target, such as a path that a call was given: what comes of the
    /// look is for others to see.
    #[cfg(feature = "snap")]
    pub(crate) fn leave_out_texts(&self) {
        self.0.leaves_out_texts.store(true, Ordering::Relaxed);
    }

    /// Whether texts may be taken from the memory of the target.
    pub(crate) fn takes_texts(&self) -> bool {
        !self.0.leaves_out_texts.load(Ordering::Relaxed)
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
            gaps.push(Gap::whole(format!("{} other parts of the target's files", look.unnamed), TOO_MUCH));
        }
        gaps
    }

    /// What `read` gives for the file `key`: read once, and kept until the look ends.
    pub(crate) fn once<T: Any + Send + Sync>(&self, key: FileKey, read: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let known = || self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key).and_then(Weak::upgrade).and_then(|found| found.downcast().ok()) {
            return Some(found);
        }
        // Not locked meanwhile: it may take long, and two threads that read the same file at one time do no harm.
        let found = Arc::new(read()?);
        let shared: Arc<dyn Any + Send + Sync> = found.clone();
        let mut known = known();
        known.retain(|_, other| other.strong_count() > 0);
        known.insert(key, Arc::downgrade(&shared));
        drop(known);
        let mut look = self.look();
        if look.depth > 0 {
            look.kept.push(shared);
        }
        Some(found)
    }

    /// Adds what this look has left out so far to `gaps`, as far as it is not among them already.
    pub fn report(&self, gaps: &mut Vec<Gap>) {
        // This count is out of date.
        gaps.retain(|gap| gap.why != TOO_MUCH);
        for gap in self.left_out() {
            if !gaps.contains(&gap) {
                gaps.push(gap);
            }
        }
    }
}

impl Share {
    /// Makes it larger; `false`, and no change, if less is left.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= MAX_BYTES);
        let is_granted = self.limits.0.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if is_granted {
            self.bytes += bytes;
        }
        is_granted
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut look = self.0.look();
        look.depth -= 1;
        if look.depth == 0 {
            look.clock = None;
            let kept = std::mem::take(&mut look.kept);
            drop(look);
            drop(kept);
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
        let mut rest = limits.clone().share(0).unwrap();
        assert!(rest.grow(1) && !rest.grow(1));
        drop((most, rest));
        assert!(limits.share(MAX_BYTES).is_some());
        for number in 0..100 {
            limits.leave_out(format!("table {}", number % 50), "too large");
        }
        let gaps = limits.left_out();
        assert_eq!(gaps.len(), MAX_NAMED + 1);
        assert!(gaps[MAX_NAMED].what.contains("68 other"), "{gaps:?}");
        let mut told = Vec::new();
        limits.report(&mut told);
        limits.leave_out("one more", "too large");
        limits.report(&mut told);
        assert_eq!(told.len(), MAX_NAMED + 1);
        assert!(told[MAX_NAMED].what.contains("69 other"), "{told:?}");
        let inner = limits.begin();
        drop(inner);
        assert_eq!(limits.left_out().len(), MAX_NAMED + 1, "a part of a look does not forget");
        drop(_look);
        let _next = limits.begin();
        assert_eq!(limits.left_out(), []);
    }

    #[test]
    fn a_look_that_has_used_up_its_time_says_so_and_the_next_one_has_its_own() {
        let limits = Limits::default();
        assert!(!limits.is_over(), "no look, no time");
        let look = limits.begin();
        assert!(!limits.is_over() && limits.share(1).is_some());
        if let Some(clock) = &mut limits.look().clock {
            (clock.end, clock.next) = (Duration::ZERO, Instant::now());
        }
        assert!(limits.is_over() && limits.is_over() && limits.share(1).is_none());
        assert_eq!(limits.left_out().iter().filter(|gap| gap.why == OUT_OF_TIME).count(), 1);
        assert!(OUT_OF_TIME.starts_with(NO_TIME));
        drop(look);
        let _next = limits.begin();
        assert!(!limits.is_over());
    }
}
