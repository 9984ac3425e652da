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
    let slots: Vec<_> = facts.filter(is_running).collect();
    if slots.is_empty() {
        return;
    }
    let running: Vec<LwpFacts> = slots.iter().map(|facts| (**facts).clone()).collect();
    for (slot, verdict) in slots.into_iter().zip(watch(kernel, &running)) {
        match verdict {
            Verdict::State(state, evidence) => slot.running = Some((state, evidence)),
            Verdict::Moved(now) => *slot = *now,
        }
    }
}

/// What was found out about a thread that was `R` at first.
enum Verdict {
    /// Its state, and how it is known.
    State(ThreadState, Evidence),
    /// It went on; this is what it does now.
    Moved(Box<LwpFacts>),
}

/// Watches the threads `running` until each has run, moved on, or two ticks have passed.
fn watch(kernel: &dyn KernelFacts, running: &[LwpFacts]) -> Vec<Verdict> {
    let before: Vec<_> = running.iter().map(|facts| kernel.sched_counters(facts.lwp)).collect();
    let deadline = Instant::now() + two_ticks();
    let mut verdicts: Vec<Option<Verdict>> = running.iter().map(|_| None).collect();
    loop {
        let late = Instant::now() >= deadline;
        for ((facts, before), verdict) in running.iter().zip(&before).zip(&mut verdicts) {
            if verdict.is_none() {
                *verdict = judge(kernel, facts, *before, late);
            }
        }
        if late {
            break;
        }
        if verdicts.iter().all(Option::is_some) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let default = || Verdict::State(ThreadState::Active, Evidence::Derived);
    verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(default)).collect()
}

fn judge(kernel: &dyn KernelFacts, facts: &LwpFacts, before: Option<SchedCounters>, late: bool) -> Option<Verdict> {
    let (Some(before), Some(now)) = (before, kernel.sched_counters(facts.lwp)) else {
        return Some(Verdict::State(ThreadState::Active, Evidence::Inferred));
    };
    if now.run_ns != before.run_ns || now.timeslices != before.timeslices {
        return Some(Verdict::State(ThreadState::Active, Evidence::Derived));
    }
    if !late {
        return None;
    }
    // It has not run for two ticks. Asleep by now, or still queued?
    let again = kernel.facts(&[facts.lwp]).pop().flatten()?;
    Some(match again.state {
        KernelState::Running => Verdict::State(ThreadState::Run, Evidence::Derived),
        _ => Verdict::Moved(Box::new(again)),
    })
}

/// The coarse clock advances once a tick, so its resolution is the tick.
fn two_ticks() -> Duration {
    let tick = nix::time::clock_getres(nix::time::ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(Duration::from_millis(10), Duration::from);
    (2 * tick).clamp(Duration::from_millis(2), Duration::from_millis(20))
}
