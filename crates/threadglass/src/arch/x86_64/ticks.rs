//! The time stamp counter.

use nix::time::{ClockId, clock_gettime};
use std::arch::x86_64::_rdtsc;
use std::time::Duration;

/// Ticks of the counter and nanoseconds of `CLOCK_MONOTONIC` at one moment.
pub(crate) fn pair() -> Option<(u64, u64)> {
    let ns = || u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?).as_nanos()).ok();
    // SAFETY: every x86-64 processor has it, and Linux lets programs use it.
    let ticks = || unsafe { _rdtsc() };
    let before = ticks();
    let ns = ns()?;
    Some((before + ticks().saturating_sub(before) / 2, ns))
}
