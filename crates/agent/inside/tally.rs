//! What is counted, in terms of atomics.

use crate::memory::{self, HEADER};
use crate::stacks::{self, Caller};
use crate::{clock, lease};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use table::Entry;

/// Whether every hold is timed, and not one in 64.
static IS_EXACT: AtomicBool = AtomicBool::new(false);

/// One hold in 2 to the power of this is timed.
pub const SAMPLED_BITS: u32 = 6;
/// Mixes a word: its count, which is at the upper end, times the golden section of what fits there.
pub const MIX: i32 = 0x0278_dde7;

/// Whether every hold is timed from now on.
pub fn set_exact(exact: bool) {
    IS_EXACT.store(exact, Relaxed);
}

/// Whether every hold is timed.
pub fn is_exact() -> bool {
    IS_EXACT.load(Relaxed)
}

/// Adds one, and stays at the largest number.
#[inline(always)]
pub fn bump(counter: &AtomicU32) {
    if counter.load(Relaxed) < u32::MAX - 0xffff {
        counter.fetch_add(1, Relaxed);
    } else {
        bump_slowly(counter);
    }
}

#[cold]
fn bump_slowly(counter: &AtomicU32) {
    let _ = counter.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
}

/// Adds one to what only the holder of a lock writes.
#[inline(always)]
pub fn bump_held(counter: &AtomicU32) {
    counter.store(counter.load(Relaxed).saturating_add(1), Relaxed);
}

/// Whether the `n`th hold of a lock is timed: each, or one in 64, spread evenly but without a period.
#[inline(always)]
pub fn is_timed(n: u64) -> bool {
    (n << table::words::COUNT).wrapping_mul(MIX as u64) >> (64 - SAMPLED_BITS) == 0 || is_exact()
}

/// A lock was acquired for good: notes who, where, when. Called by its holder. The time is taken last, so that what is
/// done here is no part of the hold.
#[inline(always)]
pub fn acquired(entry: &Entry, is_timed: bool, held_since: &AtomicU64, tid: u32, site: usize) {
    entry.last.store(tid, Relaxed);
    memory::note_holder(entry, site);
    // Also without a time: a hold whose end was not seen must not become part of this one.
    held_since.store(if is_timed { clock::now() } else { 0 }, Relaxed);
}

/// A lock is about to be released by its holder. Whether the hold was timed.
#[inline(always)]
pub fn released(held_since: &AtomicU64, hold_time: &AtomicU64, holds: &AtomicU32) -> bool {
    let began = held_since.load(Relaxed);
    if began != 0 {
        let now = clock::now();
        held_since.store(0, Relaxed);
        // What began before tracking was switched on again may have ended unseen.
        if clock::since(HEADER.enabled_at.load(Relaxed), began) != 0 {
            lease::check(now);
            hold_time.store(hold_time.load(Relaxed).wrapping_add(clock::since(began, now)), Relaxed);
            bump_held(holds);
        }
    }
    began != 0
}

/// A wait that has begun: when, and who had the lock.
#[derive(Clone, Copy, Default)]
pub struct Wait {
    began: u64,
    holder: u64,
}

impl Wait {
    pub fn begin(entry: Option<&Entry>) -> Self {
        let holder = entry.and_then(memory::extra_or_new).map_or(0, |extra| extra.holder.load(Relaxed));
        let began = clock::now();
        lease::check(began);
        Self { began, holder }
    }

    pub fn has_begun(self) -> bool {
        self.began != 0
    }

    /// Notes its end, and gives how long it was. `caller` tells where the call came from.
    pub fn end(self, entry: &Entry, site: usize, caller: impl FnOnce() -> Option<Caller>) -> u64 {
        let now = clock::now();
        // One that began when tracking was on before counts from when it was switched on again.
        let enabled = HEADER.enabled_at.load(Relaxed);
        let from = if clock::since(self.began, enabled) != 0 { enabled } else { self.began };
        let time = clock::since(from, now);
        clock::note(now);
        let Some(extra) = memory::extra_or_new(entry) else { return time };
        bump(&extra.histogram[table::bucket(time)]);
        stacks::note(entry, extra, time, site, caller);
        for place in &extra.sites {
            let mut waiter = place.waiter.load(Acquire);
            if waiter == 0 {
                waiter = match place.waiter.compare_exchange(0, site as u64, AcqRel, Acquire) {
                    Ok(_) => {
                        place.holder.store(self.holder, Release);
                        site as u64
                    }
                    Err(other) => other,
                };
            }
            if waiter == site as u64 && place.holder.load(Relaxed) == self.holder {
                place.time.fetch_add(time, Relaxed);
                break;
            }
        }
        time
    }
}
