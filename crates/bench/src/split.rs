//! The work whose shares are known, 70, 20 and 10 %, and how well a profiler finds them.

use crate::measure::Cost;
use crate::report::Budget;
use crate::stats::quartiles;
use anyhow::{Context as _, Result};

/// The truth.
const SPLIT: [f64; 3] = [70.0, 20.0, 10.0];

/// Bytes of code of each of the three functions, which lie one after the other.
const FUNCTION_SIZE: u64 = 64;

/// How long a run of the work took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub cost: Cost,
    /// The part of its CPU time that was not the work's: interrupts and signals, as the work itself saw them, and
    /// other threads.
    pub interrupted_ms: f64,
}

impl Took {
    /// From what the programs print: CPU time, wall time, interrupted.
    pub fn new([cpu_ms, wall_ms, interrupted_ms]: [f64; 3]) -> Self {
        Self { cost: Cost { wall_ms, cpu_ms, rss_kib: 0 }, interrupted_ms }
    }

    /// How many times the CPU time that its work alone needed it took.
    fn stretch(&self) -> f64 {
        self.cost.cpu_ms / (self.cost.cpu_ms - self.interrupted_ms)
    }

    /// CPU time beyond that of an unprofiled run of as much work at the same speed, in per cent.
    pub fn beyond(&self, unprofiled: &Self) -> f64 {
        (self.stretch() / unprofiled.stretch() - 1.0) * 100.0
    }
}

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

/// The figures of a line that one of the programs printed.
pub fn figures<const N: usize>(line: &str) -> Result<[f64; N]> {
    let figures = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>();
    figures.ok().and_then(|figures| figures.try_into().ok()).with_context(|| format!("odd figures: {line}"))
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
    fn what_counts_is_the_time_of_interruptions() {
        // The profiled run was slower altogether; of each 100 ms of work 3 and 1 went to interrupts.
        let (profiled, unprofiled) = (Took::new([206.0, 300.0, 6.0]), Took::new([101.0, 101.0, 1.0]));
        assert!((profiled.beyond(&unprofiled) - 1.98).abs() < 0.01);
    }

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
