//! The work whose shares are known, 70, 20 and 10 %, and how well a profiler finds them.

use crate::report::Budget;
use crate::stats::quartiles;

/// The truth.
const SPLIT: [f64; 3] = [70.0, 20.0, 10.0];

/// Bytes of code of each of the three functions, which lie one after the other.
const FUNCTION_SIZE: u64 = 64;

/// Ticks in the three functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks(pub [f64; 3]);

impl Ticks {
    /// Counts ticks at an address; `first` is where the first function begins. Ticks elsewhere are none of ours.
    pub fn count(&mut self, address: u64, first: u64, ticks: f64) {
        let which = address.checked_sub(first).and_then(|offset| usize::try_from(offset / FUNCTION_SIZE).ok());
        if let Some(sum) = which.and_then(|which| self.0.get_mut(which)) {
            *sum += ticks;
        }
    }

    /// Counts ticks of a function.
    pub fn count_name(&mut self, name: &str, ticks: f64) {
        if let Some(which) = ["seventy", "twenty", "ten"].iter().position(|known| *known == name) {
            self.0[which] += ticks;
        }
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (sum, ticks) in self.0.iter_mut().zip(other.0) {
            *sum += ticks;
        }
    }

    /// All of them.
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// How far the worst of the three shares is from the truth, in points.
    pub fn error(&self) -> Option<f64> {
        let shares = self.shares()?;
        Some(shares.iter().zip(SPLIT).map(|(share, truth)| (share - truth).abs()).fold(0.0, f64::max))
    }

    /// The three shares, in per cent.
    pub fn shares(&self) -> Option<[f64; 3]> {
        let all = self.sum();
        (all > 0.0).then(|| self.0.map(|ticks| ticks / all * 100.0))
    }

    /// The shares in words.
    pub fn words(&self) -> String {
        match self.shares() {
            Some([seventy, twenty, ten]) => format!("{seventy:.1} / {twenty:.1} / {ten:.1} %"),
            None => "no ticks".to_owned(),
        }
    }
}

/// A line about a profiler: what it found, and how far the CPU time that its runs took more (in per cent) varied.
pub fn note(what: &str, ticks: &Ticks, rate: f64, more: impl Iterator<Item = f64>) -> String {
    let spread = quartiles(more).map_or_else(String::new, |[low, high]| {
        format!("; half of the runs took {low:.1} to {high:.1} % more CPU time")
    });
    format!("{what}: {}, {rate:.0} ticks per CPU second{spread}", ticks.words())
}

/// What is promised of a profiler of ours: CPU time beyond that of the work in per cent, points that the worst share
/// is off, and ticks per CPU second.
pub fn budgets(what: &str, hz: u32, overhead: Option<f64>, error: Option<f64>, rate: Option<f64>) -> Vec<Budget> {
    let what = |of: &str| format!("{what}: {of}");
    match hz {
        1000 => vec![
            Budget::at_most(&what("CPU time more"), 2.0, " %", overhead),
            Budget::at_most(&what("worst share off by"), 1.5, " points", error),
            Budget::at_least(&what("ticks per CPU second"), 950.0, "", rate),
        ],
        _ => vec![Budget::at_most(&what("CPU time more"), 0.5, " %", overhead)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_count_where_they_belong() {
        let mut ticks = Ticks::default();
        for (address, count) in
            [(0x1000, 60.0), (0x103f, 8.0), (0x1040, 21.0), (0x10bf, 11.0), (0xfff, 9.0), (0x10c0, 9.0)]
        {
            ticks.count(address, 0x1000, count);
        }
        assert_eq!(ticks.0, [68.0, 21.0, 11.0]);
        assert_eq!(ticks.error(), Some(2.0));
        assert_eq!(Ticks::default().error(), None);
    }
}
