//! Figures from repeated runs.

use crate::measure::Cost;

/// The runs of one command, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Runs(pub Vec<Cost>);

impl Runs {
    fn wall(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|cost| cost.wall_ms)
    }

    /// Median of the wall time.
    pub fn median_ms(&self) -> Option<f64> {
        median(self.wall())
    }

    /// Mean of the wall time.
    pub fn mean_ms(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.wall().sum::<f64>() / self.0.len() as f64)
    }

    /// The fastest run: the one that was disturbed least.
    pub fn min_ms(&self) -> Option<f64> {
        self.wall().min_by(f64::total_cmp)
    }

    /// Median of the CPU time.
    pub fn cpu_ms(&self) -> Option<f64> {
        median(self.0.iter().map(|cost| cost.cpu_ms))
    }

    /// Largest peak of memory.
    pub fn rss_mib(&self) -> Option<f64> {
        self.0.iter().map(|cost| cost.rss_kib).max().map(|kib| kib as f64 / 1024.0)
    }

    /// How many times `other`'s wall time this takes. Runs of the same round are compared with each
    /// other, because they met the same disturbances; where the rounds differ, the medians are.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        if self.0.len() == other.0.len() {
            return median(self.wall().zip(other.wall()).map(|(ours, theirs)| ours / theirs));
        }
        Some(self.median_ms()? / other.median_ms()?)
    }
}

/// The middle one.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Between which two figures the middle half of them lies: how much one more run may differ.
pub fn quartiles(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let (low, high) = (values.get(..half)?, values.get(values.len() - half..)?);
    Some([median(low.iter().copied())?, median(high.iter().copied())?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(wall: &[f64]) -> Runs {
        Runs(wall.iter().map(|wall_ms| Cost { wall_ms: *wall_ms, cpu_ms: 1.0, rss_kib: 2048 }).collect())
    }

    #[test]
    fn medians_of_odd_even_and_no_runs() {
        assert_eq!(runs(&[3.0, 1.0, 2.0]).median_ms(), Some(2.0));
        assert_eq!(runs(&[4.0, 1.0, 2.0, 3.0]).median_ms(), Some(2.5));
        assert_eq!(runs(&[]).median_ms(), None);
        assert_eq!(runs(&[4.0, 1.0]).min_ms(), Some(1.0));
        assert_eq!(runs(&[4.0]).rss_mib(), Some(2.0));
    }

    #[test]
    fn quartiles_are_the_medians_of_the_halves() {
        assert_eq!(quartiles([5.0, 1.0, 2.0, 4.0, 3.0].into_iter()), Some([1.5, 4.5]));
        assert_eq!(quartiles([2.0, 1.0].into_iter()), Some([1.0, 2.0]));
        assert_eq!(quartiles([1.0].into_iter()), None);
    }

    #[test]
    fn runs_of_one_round_are_compared_with_each_other() {
        // The second round was disturbed: both commands took ten times as long.
        let (ours, theirs) = (runs(&[2.0, 20.0, 2.0]), runs(&[1.0, 10.0, 1.0]));
        assert_eq!(ours.ratio_to(&theirs), Some(2.0));
        assert_eq!(ours.ratio_to(&runs(&[4.0])), Some(0.5));
        assert_eq!(ours.ratio_to(&runs(&[])), None);
    }
}
