//! Averages over time: integrals, and the fractions that C can hold.

/// Integrals over a span of time, in nanoseconds (of one thread or task each). `running <= runnable <= lwps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Averages {
    wall: u128,
    lwps: u128,
    runnable: u128,
    running: u128,
    /// Of tasks that could run and had no thread.
    waiting_tasks: u128,
}

impl Averages {
    /// Of `wall` nanoseconds. The three are measured one by one, each with its own small error. What contradicts is
    /// corrected here: a thread that ran, or wanted to run, was there.
    pub fn new(wall: u128, lwps: u128, runnable: u128, running: u128) -> Self {
        if wall == 0 {
            return Self::default();
        }
        let lwps = lwps.max(running);
        Self { wall, lwps, runnable: runnable.clamp(running, lwps), running, waiting_tasks: 0 }
    }

    /// The same of a process in which `waiting` is the integral of tasks that could run and had no thread.
    pub fn with_waiting_tasks(self, waiting: u128) -> Self {
        if self.wall == 0 { self } else { Self { waiting_tasks: waiting, ..self } }
    }

    fn over_wall(&self, integral: u128) -> f64 {
        if self.wall == 0 { 0.0 } else { integral as f64 / self.wall as f64 }
    }

    /// Threads that ran or waited for a CPU, and tasks that could run and had no thread, on average.
    pub fn nrunnable(&self) -> f64 {
        self.over_wall(self.runnable.saturating_add(self.waiting_tasks))
    }

    /// Threads that ran, on average.
    pub fn a_concurrency(&self) -> f64 {
        self.over_wall(self.running)
    }

    /// LWPs, on average.
    pub fn nlwps(&self) -> f64 {
        self.over_wall(self.lwps)
    }

    /// LWPs that neither ran nor waited for a CPU, on average.
    pub fn nidle(&self) -> f64 {
        self.over_wall(self.lwps - self.runnable)
    }

    /// As fractions of 32-bit numbers.
    pub fn fractions(&self) -> Fractions {
        /// One microsecond, as long as that fits.
        const UNIT: u128 = 1000;
        const MOST: u128 = i32::MAX as u128;
        let wanting = self.runnable.saturating_add(self.waiting_tasks);
        let largest = self.wall.max(self.lwps).max(wanting);
        let unit = largest.div_ceil(MOST).max(UNIT);
        // At most i32::MAX by the choice of the unit. Dividing all by one number keeps their order.
        let scaled = |integral: u128| i32::try_from(integral / unit).unwrap_or(i32::MAX);
        match scaled(self.wall) {
            0 => Fractions { den: 1, ..Fractions::default() },
            den => {
                let (nlwps, nidle) = (scaled(self.lwps), scaled(self.lwps) - scaled(self.runnable));
                Fractions { den, nlwps, nrunnable: scaled(wanting), a_concurrency: scaled(self.running), nidle }
            }
        }
    }
}

/// Four averages with one denominator: microseconds, or a multiple of them once these no longer fit.
/// `a_concurrency <= nrunnable`; without tasks `nrunnable <= nlwps` and `nidle = nlwps - nrunnable`; all 0/1 before any time
/// has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fractions {
    /// The denominator, at least 1.
    pub den: i32,
    /// Numerator of the runnable threads.
    pub nrunnable: i32,
    /// Of the running ones.
    pub a_concurrency: i32,
    /// Of the LWPs.
    pub nlwps: i32,
    /// Of the LWPs that are neither.
    pub nidle: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_yet_is_nought_over_one() {
        let none = Fractions { den: 1, ..Fractions::default() };
        assert_eq!(Averages::default().fractions(), none);
        assert_eq!(Averages::new(0, 5, 5, 5).fractions(), none);
        assert_eq!(Averages::new(999, 999, 0, 0).fractions(), none, "less than the unit");
    }

    #[test]
    fn a_second_is_a_million() {
        let second = 1_000_000_000;
        let fractions = Averages::new(second, 5 * second, 4 * second, 2 * second).fractions();
        let expected = Fractions {
            den: 1_000_000,
            nrunnable: 4_000_000,
            a_concurrency: 2_000_000,
            nlwps: 5_000_000,
            nidle: 1_000_000,
        };
        assert_eq!(fractions, expected);
    }

    #[test]
    fn weeks_of_many_threads_keep_three_digits() {
        let weeks = 10 * 7 * 86_400 * 1_000_000_000u128;
        let fractions = Averages::new(weeks, 10_000 * weeks, 150 * weeks, 3 * weeks / 2).fractions();
        let value = |num: i32| f64::from(num) / f64::from(fractions.den);
        assert!((value(fractions.nlwps) / 10_000.0 - 1.0).abs() < 1e-3, "{fractions:?}");
        assert!((value(fractions.nrunnable) / 150.0 - 1.0).abs() < 1e-3, "{fractions:?}");
        assert!((value(fractions.a_concurrency) / 1.5 - 1.0).abs() < 1e-3, "{fractions:?}");
    }

    #[test]
    fn tasks_that_wait_for_a_thread_are_runnable() {
        let second = 1_000_000_000;
        let averages = Averages::new(second, 5 * second, 4 * second, 2 * second).with_waiting_tasks(100 * second);
        let got = averages.fractions();
        assert_eq!((got.den, got.nrunnable, got.nidle, got.nlwps), (1_000_000, 104_000_000, 1_000_000, 5_000_000));
        assert_eq!((averages.nrunnable(), averages.nidle()), (104.0, 1.0));
        // More than fit with microseconds.
        let many = Averages::new(second, 5 * second, 4 * second, 2 * second).with_waiting_tasks(1_000_000 * second);
        let got = many.fractions();
        assert!((f64::from(got.nrunnable) / f64::from(got.den) / 1_000_004.0 - 1.0).abs() < 1e-3, "{got:?}");
    }

    proptest! {
        #[test]
        fn inequalities_hold_and_nothing_overflows(
            wall in 0..=u128::from(u64::MAX), lwps in 0..=u128::MAX >> 2, runnable: u128, running in 0..=u128::MAX >> 2,
        ) {
            let averages = Averages::new(wall, lwps, runnable, running);
            let got = averages.fractions();
            prop_assert!(got.den >= 1);
            prop_assert!(0 <= got.a_concurrency && got.a_concurrency <= got.nrunnable && got.nrunnable <= got.nlwps);
            prop_assert_eq!(got.nidle, got.nlwps - got.nrunnable);
            prop_assert!(averages.a_concurrency() <= averages.nrunnable() && averages.nrunnable() <= averages.nlwps());
        }

        #[test]
        fn values_survive_scaling(ms in 1u64..1 << 42, threads in 1u64..100_000, busy in 0u64..1000) {
            let wall = u128::from(ms) * 1_000_000;
            let busy = busy.min(threads);
            let averages = Averages::new(wall, wall * u128::from(threads), wall * u128::from(busy), 0);
            let got = averages.fractions();
            let near = |num: i32, truth: u64| {
                (f64::from(num) / f64::from(got.den) - truth as f64).abs() <= truth as f64 * 1e-3 + 1e-3
            };
            prop_assert!(near(got.nlwps, threads) && near(got.nrunnable, busy), "{:?}", got);
        }
    }
}
