//! From ticks at addresses to functions and ranges.

use super::percent;
use crate::RemoteAddr;
use crate::model::{Frame, FunctionShare, RangeShare};
use std::collections::{BTreeMap, HashMap};

/// Ranges that are told.
const RANGES: usize = 20;
/// A range goes on to cells with at least this part of its hottest one's ticks.
const PART: u64 = 8;
/// A range may contain this many colder cells in a row.
const BRIDGE: u64 = 2;

/// Ticks at one address, in the function that the code there really belongs to.
pub(super) struct Tick {
    pub(super) frame: Frame,
    pub(super) samples: u64,
}

/// A function's name and its module's.
type FunctionKey<'t> = (&'t Option<String>, &'t Option<String>);

fn key(tick: &Tick) -> FunctionKey<'_> {
    (&tick.frame.function, &tick.frame.module)
}

/// Functions with their ticks, the most first.
pub(super) fn functions(ticks: &[Tick], all: u64) -> Vec<FunctionShare> {
    let mut sums: HashMap<FunctionKey<'_>, u64> = HashMap::new();
    for tick in ticks {
        *sums.entry(key(tick)).or_default() += tick.samples;
    }
    let mut functions: Vec<FunctionShare> = sums
        .into_iter()
        .map(|((name, module), samples)| FunctionShare {
            name: name.clone(),
            module: module.clone(),
            samples,
            percent: percent(samples, all),
        })
        .collect();
    functions.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| (&a.name, &a.module).cmp(&(&b.name, &b.module))));
    functions
}

/// The ticks of one cell of a function.
#[derive(Default)]
struct Cell {
    samples: u64,
    /// The hottest address in it, with its ticks.
    hottest: Option<(u64, usize)>,
}

/// The hottest pieces of functions, as cells of `bytes` tell them.
pub(super) fn ranges(ticks: &[Tick], all: u64, bytes: u64) -> Vec<RangeShare> {
    let bytes = bytes.max(1);
    let mut by_function: HashMap<FunctionKey<'_>, BTreeMap<u64, Cell>> = HashMap::new();
    for (index, tick) in ticks.iter().enumerate() {
        let Some(offset) = tick.frame.offset else { continue };
        let cells = by_function.entry(key(tick)).or_default();
        let cell = cells.entry(offset / bytes).or_default();
        cell.samples += tick.samples;
        if cell.hottest.is_none_or(|(samples, _)| tick.samples > samples) {
            cell.hottest = Some((tick.samples, index));
        }
    }
    let mut ranges = Vec::new();
    for ((function, module), cells) in by_function {
        for (first, last) in clusters(&cells) {
            let part = || cells.range(first..=last);
            let samples = part().map(|(_, cell)| cell.samples).sum();
            let hottest = part().filter_map(|(_, cell)| cell.hottest).max_by_key(|(samples, _)| *samples);
            let Some(frame) = hottest.map(|(_, index)| &ticks[index].frame) else { continue };
            let (from, to) = (first * bytes, (last + 1).saturating_mul(bytes));
            let start = frame.pc.0.wrapping_sub(frame.offset.unwrap_or(0));
            ranges.push(RangeShare {
                function: function.clone(),
                module: module.clone(),
                from,
                to,
                address: RemoteAddr(start.wrapping_add(from)),
                file: frame.file.clone(),
                line: frame.line,
                samples,
                percent: percent(samples, all),
            });
        }
    }
    ranges.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.address.cmp(&b.address)));
    ranges.truncate(RANGES);
    ranges
}

/// First and last cell of each hot piece: from the hottest cell that is left, as far as it is nearly as hot.
fn clusters(cells: &BTreeMap<u64, Cell>) -> Vec<(u64, u64)> {
    let mut by_heat: Vec<(u64, u64)> = cells.iter().map(|(at, cell)| (cell.samples, *at)).collect();
    by_heat.sort_unstable_by(|a, b| b.cmp(a));
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    let is_taken =
        |taken: &BTreeMap<u64, u64>, at: u64| taken.range(..=at).next_back().is_some_and(|(_, last)| at <= *last);
    for (heat, at) in by_heat.into_iter().take(4 * RANGES) {
        if is_taken(&taken, at) {
            continue;
        }
        let belongs = |cell: &Cell| cell.samples.saturating_mul(PART) >= heat;
        let (mut first, mut last) = (at, at);
        for (next, _) in cells.range(at..).skip(1).filter(|(_, cell)| belongs(cell)) {
            if next - last > BRIDGE + 1 || is_taken(&taken, *next) || taken.range(last..*next).next().is_some() {
                break;
            }
            last = *next;
        }
        for (next, _) in cells.range(..at).rev().filter(|(_, cell)| belongs(cell)) {
            if first - next > BRIDGE + 1 || is_taken(&taken, *next) || taken.range(*next..first).next().is_some() {
                break;
            }
            first = *next;
        }
        taken.insert(first, last);
    }
    taken.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(function: &str, offset: u64, samples: u64) -> Tick {
        let frame = Frame {
            pc: RemoteAddr(0x1000 + offset),
            function: Some(function.to_owned()),
            module: Some("program".to_owned()),
            offset: Some(offset),
            ..Frame::default()
        };
        Tick { frame, samples }
    }

    #[test]
    fn ticks_are_added_up_by_function() {
        let ticks = [tick("a", 0, 1), tick("b", 0, 5), tick("a", 4, 2)];
        let functions = functions(&ticks, 10);
        let told: Vec<_> = functions.iter().map(|f| (f.name.as_deref().unwrap(), f.samples, f.percent)).collect();
        assert_eq!(told, [("b", 5, 50.0), ("a", 3, 30.0)]);
    }

    #[test]
    fn hot_pieces_are_told_apart() {
        // Cells of 8 bytes: two loops, and something cold between them.
        let ticks = [tick("a", 0, 100), tick("a", 9, 50), tick("a", 17, 1), tick("a", 27, 40), tick("a", 0x100, 70)];
        let ranges = ranges(&ticks, 1000, 8);
        let told: Vec<_> = ranges.iter().map(|r| (r.from, r.to, r.samples)).collect();
        assert_eq!(told, [(0, 32, 191), (0x100, 0x108, 70)]);
        assert_eq!((ranges[1].address, ranges[1].percent), (RemoteAddr(0x1100), 7.0));
    }

    #[test]
    fn no_cell_is_in_two_ranges() {
        let ticks: Vec<Tick> = (0..500u64).map(|at| tick("a", at * 3, (at * 7919) % 101)).collect();
        let ranges = ranges(&ticks, 1, 4);
        let mut ends: Vec<_> = ranges.iter().map(|r| (r.from, r.to)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ends:?}");
    }
}
