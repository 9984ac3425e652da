//! Telling a thread that runs from one that only wants to.
//!
//! The kernel calls both `R`. Its scheduler counters tell them apart: those of a thread on a CPU
//! advance at the latest with the next clock tick. So they are read twice, at most two ticks apart,
//! and only for threads that are `R`: a process that is all asleep is not kept waiting for.

use crate::model::{Evidence, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::target::{KernelFacts, LwpFacts, SchedCounters};
use std::time::{Duration, Instant};

/// Tells apart those of `facts` that the kernel calls running, and replaces the facts of those that went
/// on meanwhile.
pub(super) fn refine<'a>(kernel: &dyn KernelFacts, facts: impl Iterator<Item = &'a mut LwpFacts>) {
    let is_running = |facts: &&mut LwpFacts| {
        facts.state == KernelState::Running && facts.syscall.is_none_or(|call| call == SyscallFile::Running)
    };
    let counted = |facts: &'a mut LwpFacts| (kernel.sched_counters(facts.lwp), facts);
    let mut pending: Vec<_> = facts.filter(is_running).map(counted).collect();
    let deadline = Instant::now() + two_ticks();
    while !pending.is_empty() {
        let late = Instant::now() >= deadline;
        pending.retain_mut(|(before, facts)| !judge(kernel, facts, *before, late));
        if !pending.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Tells in `facts` what the thread does, which had the counters `before`; `false` while that is open. Of a `late` one
/// it is not.
fn judge(kernel: &dyn KernelFacts, facts: &mut LwpFacts, before: Option<SchedCounters>, late: bool) -> bool {
    let running = match before.zip(kernel.sched_counters(facts.lwp)) {
        None => (ThreadState::Active, Evidence::Inferred),
        Some((before, now)) if now.run_ns != before.run_ns || now.timeslices != before.timeslices => {
            (ThreadState::Active, Evidence::Derived)
        }
        Some(_) if !late => return false,
        // It has not run for two ticks. Asleep by now, or still queued?
        Some(_) => match kernel.facts(&[facts.lwp]).pop().flatten() {
            None => (ThreadState::Active, Evidence::Derived),
            Some(now) if now.state == KernelState::Running => (ThreadState::Run, Evidence::Derived),
            Some(now) => {
                *facts = now;
                return true;
            }
        },
    };
    facts.running = Some(running);
    true
}

/// The coarse clock advances once a tick, so its resolution is the tick.
fn two_ticks() -> Duration {
    let tick = nix::time::clock_getres(nix::time::ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(Duration::from_millis(10), Duration::from);
    (2 * tick).clamp(Duration::from_millis(2), Duration::from_millis(20))
}
