//! CPU times as `/proc` shows them.

/// Nanoseconds in a clock tick of `/proc`, which has 100 in a second on x86-64.
const TICK: u64 = 10_000_000;

/// What the kernel keeps of a thread's CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTime {
    /// By sampling: where the thread was at each timer interrupt.
    pub(super) user: u64,
    pub(super) system: u64,
    /// By the clock, exact.
    pub(super) runtime: u64,
    /// What was shown last: what is shown never decreases.
    pub(super) shown_user: u64,
    pub(super) shown_system: u64,
}

impl CpuTime {
    /// Ticks in user mode and in the kernel: the exact time, divided as the samples are
    /// (`cputime_adjust` of the kernel).
    ///
    /// The kernel also notes what it has shown. That is left out here, so a reading of `/proc` in
    /// between may show up to a tick that was counted differently; the sum is the same.
    pub(super) fn ticks(self) -> (u64, u64) {
        let (user, system) = self.adjusted();
        (user / TICK, system / TICK)
    }

    fn adjusted(self) -> (u64, u64) {
        if self.shown_user.saturating_add(self.shown_system) >= self.runtime {
            return (self.shown_user, self.shown_system);
        }
        let system = match (self.user, self.system) {
            (_, 0) => 0,
            (0, _) => self.runtime,
            (user, system) => {
                let sum = u128::from(user) + u128::from(system);
                // At most the running time, since system <= sum.
                (u128::from(system) * u128::from(self.runtime) / sum) as u64
            }
        };
        let system = system.max(self.shown_system);
        let user = self.runtime.saturating_sub(system);
        if user < self.shown_user {
            return (self.shown_user, self.runtime.saturating_sub(self.shown_user));
        }
        (user, system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(user: u64, system: u64, runtime: u64, shown: (u64, u64)) -> (u64, u64) {
        CpuTime { user, system, runtime, shown_user: shown.0, shown_system: shown.1 }.adjusted()
    }

    #[test]
    fn exact_time_is_divided_as_the_samples_are() {
        assert_eq!(time(0, 0, 100, (0, 0)), (100, 0));
        assert_eq!(time(0, 4, 100, (0, 0)), (0, 100));
        assert_eq!(time(30, 10, 100, (0, 0)), (75, 25));
        assert_eq!(time(u64::MAX, u64::MAX, u64::MAX, (0, 0)), (u64::MAX / 2 + 1, u64::MAX / 2));
    }

    #[test]
    fn what_was_shown_never_decreases() {
        assert_eq!(time(30, 10, 100, (60, 40)), (60, 40), "nothing ran since");
        assert_eq!(time(30, 10, 100, (0, 50)), (50, 50));
        assert_eq!(time(10, 30, 100, (80, 0)), (80, 20));
    }
}
