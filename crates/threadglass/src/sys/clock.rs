//! Clocks: of CPU time, and of time since the machine was started.

use crate::Pid;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use std::time::Duration;

/// PID_MAX_LIMIT of the kernel.
const PID_MAX: i32 = 1 << 22;

/// CPU time of all threads that process `pid` has or had, in nanoseconds; `None` when there is no such process.
pub(crate) fn process_cpu_ns(pid: Pid) -> Option<u64> {
    // 0 would be ourselves, and the number of a clock has no room for more bits than pids can have.
    if !(1..=PID_MAX).contains(&pid.0) {
        return None;
    }
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.0)).ok()?;
    u64::try_from(Duration::from(clock_gettime(clock).ok()?).as_nanos()).ok()
}

/// The clock that runs since the machine was started, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

/// Time since the machine was started, with the time that it was suspended.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// CPU time of the calling thread: what something costs, however busy the machine is.
pub(crate) fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// CPU time of all our threads.
pub(crate) fn all_own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_clock_runs_and_that_of_nobody_does_not() {
        let before = process_cpu_ns(Pid::me()).unwrap();
        let mut again = before;
        while again == before {
            again = process_cpu_ns(Pid::me()).unwrap();
        }
        assert!(again > before);
        for nobody in [0, -1, PID_MAX, i32::MAX] {
            assert_eq!(process_cpu_ns(Pid(nobody)), None, "{nobody}");
        }
    }
}
