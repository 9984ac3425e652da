//! The time stamp counter.

use std::arch::x86_64::_rdtsc;

/// Ticks of the counter and nanoseconds of `CLOCK_MONOTONIC` at one moment.
pub(crate) fn pair() -> Option<(u64, u64)> {
    let ns = || {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).ok()?;
        u64::try_from(time.tv_sec()).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec()).ok()?)
    };
    // SAFETY: every x86-64 processor has it, and Linux lets programs use it.
    let ticks = || unsafe { _rdtsc() };
    let before = ticks();
    let ns = ns()?;
    Some((before + ticks().saturating_sub(before) / 2, ns))
}
