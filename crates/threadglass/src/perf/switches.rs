//! Which clock disturbs a process less: one for each thread, or one for each CPU.
//!
//! A thread's clock is a timer that the kernel sets when the thread gets a CPU and takes away when it loses it. For
//! one that computes that is nothing. For one that goes to sleep and wakes many thousand times a second it is the
//! larger part of what profiling costs: on a virtual machine, where each setting is an exit to the host, such a
//! program was seen to run at a seventh of its speed. A CPU's clock just ticks, whoever runs, but it ticks for the
//! other programs of the machine too, and on idle CPUs.

use crate::Lwp;
use crate::target::{KernelFacts, Live};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Ticks of the kernel's own clock in a second, at most kernels: timers that expire after its next one cost less.
const KERNEL: u64 = 250;
/// How often it is looked at first, and in the end.
const FIRST: Duration = Duration::from_millis(40);
const LAST: Duration = Duration::from_millis(250);
/// At most one part in this many of the time is spent looking.
const SHARE: u32 = 50;

/// How often the threads of a process get a CPU.
pub(crate) struct Switches {
    last: HashMap<Lwp, u64>,
    looked: Instant,
    nap: Duration,
}

impl Switches {
    /// Begins to count.
    pub(crate) fn new(live: &Live) -> Self {
        let mut counts = HashMap::new();
        let looked = Instant::now();
        let _ = since(live, &mut counts);
        Self { last: counts, looked, nap: FIRST.max(looked.elapsed() * SHARE) }
    }

    /// How often in a second they got one since the last look; `None` while it is not worth another.
    pub(crate) fn look(&mut self, live: &Live) -> Option<f64> {
        let elapsed = self.looked.elapsed();
        if elapsed < self.nap {
            return None;
        }
        self.looked = Instant::now();
        let switches = since(live, &mut self.last);
        self.nap = (self.nap * 2).min(LAST).max(self.looked.elapsed() * SHARE);
        Some(switches as f64 / elapsed.as_secs_f64())
    }
}

/// Whether ticks of whole CPUs, at this rate, mean less work for the machine.
///
/// A thread's timer is set and taken away with each switch, and interrupts only where it expires. The nearer the
/// expiry, the more often it has to be the next one of the CPU, which is what costs.
pub(crate) fn are_dear(switches_per_second: f64, rate: u32, cpus: usize) -> bool {
    let ticks = (u64::from(rate) + KERNEL) as f64 * cpus as f64;
    switches_per_second > 2.0 * ticks
}

/// How often threads got a CPU since the last look.
fn since(live: &Live, last: &mut HashMap<Lwp, u64>) -> u64 {
    let Ok(lwps) = live.lwps() else { return 0 };
    let now = lwps.into_iter().filter_map(|lwp| Some((lwp, live.sched_counters(lwp)?.timeslices)));
    let now: HashMap<Lwp, u64> = now.collect();
    let new = |(lwp, count): (&Lwp, &u64)| count.saturating_sub(last.get(lwp).copied().unwrap_or(0));
    let sum = now.iter().map(new).sum();
    *last = now;
    sum
}

#[cfg(test)]
mod tests {
    use super::are_dear;

    #[test]
    fn threads_that_hardly_switch_have_clocks_of_their_own() {
        assert!(!are_dear(500.0, 997, 2), "it computes");
        assert!(are_dear(100_000.0, 997, 2), "a server");
        assert!(!are_dear(100_000.0, 997, 128), "so many CPUs would be interrupted for it");
        assert!(are_dear(100_000.0, 100, 128));
    }
}
