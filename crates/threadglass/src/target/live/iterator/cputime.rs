//! CPU times as `/proc` shows them.

/// Nanoseconds in a clock tick of `/proc`, which has 100 in a second on x86-64.
const TICK: u64 = 10_000_000;

/// Ticks in user mode and in the kernel of a thread that ran for `runtime` nanoseconds by the clock, divided as the
/// `sampled` times are, which come from where the thread was at each timer interrupt (`cputime_adjust` of the kernel).
/// `shown` is what was shown last: what is shown never decreases.
///
/// The kernel also notes what it has shown. That is left out here, so a reading of `/proc` in
/// between may show up to a tick that was counted differently; the sum is the same.
pub(super) fn ticks(sampled: (u64, u64), runtime: u64, shown: (u64, u64)) -> (u64, u64) {
    let (user, system) = adjusted(sampled, runtime, shown);
    (user / TICK, system / TICK)
}

fn adjusted((user, system): (u64, u64), runtime: u64, shown: (u64, u64)) -> (u64, u64) {
    if shown.0.saturating_add(shown.1) >= runtime {
        return shown;
    }
    let system = match (user, system) {
        (_, 0) => 0,
        (0, _) => runtime,
        (user, system) => {
            let sum = u128::from(user) + u128::from(system);
            // At most the running time, since system <= sum.
            (u128::from(system) * u128::from(runtime) / sum) as u64
        }
    };
    let system = system.max(shown.1);
    let user = runtime.saturating_sub(system);
    if user < shown.0 {
        return (shown.0, runtime.saturating_sub(shown.0));
    }
    (user, system)
}

#[cfg(test)]
mod tests {
    use super::adjusted;

    #[test]
    fn exact_time_is_divided_as_the_samples_are() {
        assert_eq!(adjusted((0, 0), 100, (0, 0)), (100, 0));
        assert_eq!(adjusted((0, 4), 100, (0, 0)), (0, 100));
        assert_eq!(adjusted((30, 10), 100, (0, 0)), (75, 25));
        assert_eq!(adjusted((u64::MAX, u64::MAX), u64::MAX, (0, 0)), (u64::MAX / 2 + 1, u64::MAX / 2));
    }

    #[test]
    fn what_was_shown_never_decreases() {
        assert_eq!(adjusted((30, 10), 100, (60, 40)), (60, 40), "nothing ran since");
        assert_eq!(adjusted((30, 10), 100, (0, 50)), (50, 50));
        assert_eq!(adjusted((10, 30), 100, (80, 0)), (80, 20));
    }
}
