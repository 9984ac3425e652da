//! For how long threads have not been on a CPU.
//!
//! The kernel notes by a CPU's own clock when a thread was last there (`se.exec_start` in its `sched`
//! file). That clock stands still while the host has taken the CPU away, and differs from CPU to CPU; so
//! the time now is read on the same CPU, by a thread of ours that goes there. What comes out is a lower
//! bound, and short by the time the host took.

use super::Live;
use crate::Lwp;
use nix::sched::{CpuSet, sched_setaffinity};
use std::collections::{BTreeSet, HashMap};
use std::thread;
use std::time::{Duration, Instant};

/// How often the time on a CPU is read until nothing has come in between.
const READS: usize = 4;
/// Two readings as close as this are of one time.
const MOMENT: Duration = Duration::from_millis(2);

impl Live {
    pub(super) fn idle(&self, lwps: &[Lwp]) -> Vec<Option<u64>> {
        self.last_ran(lwps).into_iter().map(|at| Some(at?.elapsed().as_millis() as u64)).collect()
    }

    /// When each of these threads was last on a CPU.
    pub(crate) fn last_ran(&self, lwps: &[Lwp]) -> Vec<Option<Instant>> {
        let known = self.last_runs_by_iterator(lwps.len()).unwrap_or_default();
        let last_run = |lwp: &Lwp| known.get(lwp).copied().unwrap_or_else(|| self.last_run(*lwp));
        let last: Vec<Option<(usize, f64)>> = lwps.iter().map(last_run).collect();
        let cpus: BTreeSet<usize> = last.iter().flatten().map(|(cpu, _)| *cpu).collect();
        let now = clocks_of(&cpus);
        let when = |last: &Option<(usize, f64)>| {
            let (cpu, at) = (*last)?;
            let (clock, moment) = now.get(&cpu).copied().flatten()?;
            moment.checked_sub(Duration::try_from_secs_f64((clock - at).max(0.0) / 1000.0).ok()?)
        };
        last.iter().map(when).collect()
    }

    /// The CPU a thread was on last, and when, by that CPU's clock. Public for tests, which compare.
    #[doc(hidden)]
    pub fn last_run(&self, lwp: Lwp) -> Option<(usize, f64)> {
        let mut reader = self.reader();
        let cpu = usize::try_from(reader.stat(lwp)?.processor).ok()?;
        Some((cpu, exec_start(reader.read(lwp, "sched").ok()?)?))
    }
}

/// The time on each of these CPUs, in milliseconds, and the moment at which it was that; `None` where we may not run.
fn clocks_of(cpus: &BTreeSet<usize>) -> HashMap<usize, Option<(f64, Instant)>> {
    // All at once: each waits for its turn on a busy CPU.
    thread::scope(|scope| {
        let readers: Vec<_> =
            cpus.iter().map(|cpu| (*cpu, thread::Builder::new().spawn_scoped(scope, || clock_of(*cpu)))).collect();
        readers.into_iter().map(|(cpu, reader)| (cpu, reader.ok().and_then(|reader| reader.join().ok()?))).collect()
    })
}

/// The time on `cpu`, for a thread that may be moved there.
fn clock_of(cpu: usize) -> Option<(f64, Instant)> {
    let mut here = CpuSet::new();
    here.set(cpu).ok()?;
    sched_setaffinity(nix::unistd::Pid::from_raw(0), &here).ok()?;
    let read = || {
        let before = Instant::now();
        let clock = exec_start(&std::fs::read("/proc/thread-self/sched").ok()?)?;
        Some((clock, before))
    };
    let mut last = None;
    for _ in 0..READS {
        last = read();
        // On a busy CPU another thread may have run in between.
        if last.is_none_or(|(_, before)| before.elapsed() < MOMENT) {
            break;
        }
    }
    last
}

/// When a thread was put on a CPU last. The kernel forgets it where the thread moves to another CPU or is new.
fn exec_start(sched: &[u8]) -> Option<f64> {
    const NAME: &[u8] = b"\nse.exec_start";
    let line = &sched[memchr::memmem::find(sched, NAME)? + NAME.len()..];
    let line = std::str::from_utf8(line.split(|byte| *byte == b'\n').next()?).ok()?;
    line.rsplit(':').next()?.trim().parse().ok().filter(|at| *at > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_file() {
        let file = b"x (1, #threads: 1)\n---\nse.exec_start                                :      11082416.314320\n";
        assert_eq!(exec_start(file), Some(11082416.314320));
        assert_eq!(exec_start(b"\nse.exec_start : x\n"), None);
        assert_eq!(exec_start(b"\nse.exec_start : 0.000000\n"), None);
        assert_eq!(exec_start(b""), None);
    }
}
