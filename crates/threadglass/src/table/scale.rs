//! From the agent's times to nanoseconds.

use crate::arch::ticks;
use table::clock;
use table::decode::HeaderView;

/// Nanoseconds of a tick; `None` if that is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale(Option<f64>);

/// Ticks between two pairs of times that give a good scale: a tenth of a second or so.
const FAR: u64 = 1 << 28;

impl Scale {
    pub(super) fn new(view: &HeaderView, is_live: bool) -> Self {
        if view.clock == clock::NANOSECONDS {
            return Self(Some(1.0));
        }
        let noted = view.last.and_then(|last| between(view.start, last));
        let is_good = view.last.is_some_and(|last| last.0.saturating_sub(view.start.0) > FAR);
        // Our own clock is the program's, unless it lives in a time namespace, which is then plain to see.
        let own = || ticks::pair().filter(|_| is_live).and_then(|now| between(view.start, now));
        Self(if is_good { noted } else { own().or(noted) })
    }

    /// `ticks` in nanoseconds.
    pub(super) fn ns(self, ticks: u64) -> u64 {
        self.0.map_or(0, |scale| (ticks as f64 * scale) as u64)
    }
}

/// Nanoseconds of a tick between two moments, if there is a processor of such a speed.
fn between(first: (u64, u64), second: (u64, u64)) -> Option<f64> {
    let (ticks, ns) = (second.0.checked_sub(first.0)?, second.1.checked_sub(first.1)?);
    let scale = ns as f64 / ticks as f64;
    (0.05..20.0).contains(&scale).then_some(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_speed_that_exists_is_believed() {
        assert_eq!(between((1000, 0), (3000, 1000)), Some(0.5));
        for (first, second) in [((5, 5), (5, 5)), ((5, 5), (4, 6)), ((5, 5), (6, 4)), ((0, 0), (1, u64::MAX))] {
            assert_eq!(between(first, second), None);
        }
        let now = ticks::pair().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(between(now, ticks::pair().unwrap()).is_some());
    }
}
