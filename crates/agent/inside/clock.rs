//! Times: ticks of the time stamp counter where it is good, nanoseconds elsewhere.

use crate::memory::HEADER;
use crate::sys;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::sync::atomic::{AtomicBool, Ordering::*};

static TICKS: AtomicBool = AtomicBool::new(false);

/// A new pair of times is noted when the last one is so old, in ticks: about 10 ms.
const OLD: u64 = 1 << 25;

/// Decides for a clock, and notes the first pair of times.
pub fn start() {
    // Whether the counter runs at one speed, also in deep sleep: what the kernel calls constant and nonstop.
    let is_good = __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    TICKS.store(is_good, Relaxed);
    HEADER.clock.store(if is_good { table::clock::TICKS } else { table::clock::NANOSECONDS }, Relaxed);
    let (ticks, ns) = pair();
    HEADER.start_ticks.store(ticks, Relaxed);
    HEADER.start_ns.store(ns, Relaxed);
}

/// Now, never 0.
#[inline(always)]
pub fn now() -> u64 {
    if TICKS.load(Relaxed) {
        // SAFETY: every x86-64 processor has it, and Linux lets programs use it.
        unsafe { _rdtsc() }
    } else {
        slowly()
    }
}

/// Not inlined: a system call takes registers that a fast path has no time to save.
#[cold]
#[inline(never)]
fn slowly() -> u64 {
    sys::monotonic()
}

/// How long ago `then` was; nothing if the clocks of two processors disagree.
#[inline(always)]
pub fn since(then: u64, now: u64) -> u64 {
    let gone = now.wrapping_sub(then);
    if (gone as i64) < 0 { 0 } else { gone }
}

fn pair() -> (u64, u64) {
    let before = now();
    let ns = sys::monotonic();
    let after = now();
    (before.wrapping_add(since(before, after) / 2), ns)
}

/// Notes a pair of times now and then, so that a core file tells how long a tick is. Not on anybody's fast path.
pub fn note(now: u64) {
    if since(HEADER.last_ticks.load(Relaxed), now) < OLD {
        return;
    }
    let seq = HEADER.clock_seq.load(Relaxed);
    if !seq.is_multiple_of(2) || HEADER.clock_seq.compare_exchange(seq, seq.wrapping_add(1), AcqRel, Relaxed).is_err() {
        return;
    }
    let (ticks, ns) = pair();
    HEADER.last_ticks.store(ticks, Relaxed);
    HEADER.last_ns.store(ns, Relaxed);
    HEADER.clock_seq.store(seq.wrapping_add(2), Release);
}
