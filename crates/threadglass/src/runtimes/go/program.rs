//! A Go program whose tables were found: its functions, variables and the layout of its release.

use super::functions::Functions;
use super::goroutines::{self, Goroutine};
use super::locate::{Globals, Located, wait_reasons};
use super::offsets::{KNOWN, Layout};
use super::stacks::{Stacks, Walked};
use crate::memory::Memory;
use crate::model::SharedText;

/// Goroutines by which a layout is tried.
const TRIED: usize = 256;

/// How often that is done while none fits: goroutines move while they are read.
const TRIES: usize = 3;
/// The part of all goroutines that must make sense, in quarters: with the layout of the release that the program tells, and with
/// that of another one.
const OF_KNOWN: usize = 1;
const OF_OTHER: usize = 3;

/// How it is known where a program keeps things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayoutSource {
    /// Its release was measured.
    Release,
    /// Its debug information tells.
    Described,
    /// It is that of another release, under which all goroutines make sense.
    Calibrated,
}

/// What goroutines of a program are read with.
pub(super) struct Program<'m> {
    pub(super) memory: &'m dyn Memory,
    pub(super) functions: Functions<'m>,
    pub(super) globals: Globals,
    pub(super) layout: Layout,
    pub(super) source: LayoutSource,
    /// By number.
    pub(super) reasons: Vec<SharedText>,
    /// All goroutines that ever were, sorted by address.
    pub(super) addresses: Vec<u64>,
}

impl<'m> Program<'m> {
    /// Learns where things are. `described` gives the layout as debug information has it. An error says what is missing.
    pub(super) fn learn(
        memory: &'m dyn Memory,
        located: &Located,
        described: impl FnOnce() -> Option<Layout>,
    ) -> Result<Self, String> {
        let functions = Functions::read(memory, located.module.clone()).map_err(|error| error.to_string())?;
        let globals = Globals::find(memory, &functions, &located.symbols);
        let Some((list, length)) = globals.all else {
            return Err("the list of goroutines was not found: the program has no symbols, and its code is not as in \
                        releases that are known"
                .to_owned());
        };
        let mut addresses = goroutines::addresses(memory, list, length).map_err(|error| error.to_string())?;
        addresses.retain(|address| *address != 0);
        addresses.sort_unstable();
        addresses.dedup();
        let exact = located.release.and_then(Layout::of);
        let fits = |layout: &Layout, quarters: usize| {
            (0..TRIES).find_map(|_| fits(memory, &functions, layout, &addresses, quarters))
        };
        let fits_known = |layout: &Layout| fits(layout, OF_KNOWN).is_some();
        let measured = exact.filter(|layout| fits_known(layout)).map(|layout| (*layout, LayoutSource::Release));
        let described = || described().filter(fits_known).map(|layout| (layout, LayoutSource::Described));
        let (layout, source) = measured.or_else(described).or_else(|| calibrated(located, &fits)).ok_or_else(|| {
            let version = located.version.as_deref().unwrap_or("a version of Go that is not told");
            format!("{version} keeps goroutines in a way that this version does not know")
        })?;
        let reasons = globals.wait_reasons.map(|table| wait_reasons(memory, table)).unwrap_or_default();
        Ok(Self { memory, functions, globals, layout, source, reasons, addresses })
    }

    /// Why a goroutine waits, in Go's own words.
    pub(super) fn reason(&self, goroutine: &Goroutine) -> Option<&SharedText> {
        self.reasons.get(usize::from(goroutine.wait_reason))
    }
}

/// The layout under which most goroutines make sense, of equal ones that of the next release.
fn calibrated(located: &Located, fits: &dyn Fn(&Layout, usize) -> Option<usize>) -> Option<(Layout, LayoutSource)> {
    let told = located.release.unwrap_or(u32::MAX);
    let tried = KNOWN.iter().filter_map(|layout| {
        let score = fits(layout, OF_OTHER)?;
        Some(((score, std::cmp::Reverse(layout.release.abs_diff(told))), layout))
    });
    tried.max_by_key(|(score, _)| *score).map(|(_, layout)| (*layout, LayoutSource::Calibrated))
}

/// How well some goroutines make sense with `layout`; `None` if fewer than so many do. One that waits has a stack that ends where all
/// stacks do.
fn fits(
    memory: &dyn Memory,
    functions: &Functions<'_>,
    layout: &Layout,
    addresses: &[u64],
    quarters: usize,
) -> Option<usize> {
    let step = (addresses.len() / TRIED).max(1);
    let some: Vec<u64> = addresses.iter().copied().step_by(step).collect();
    let living = goroutines::read(memory, layout, &some);
    let resting: Vec<Goroutine> =
        living.iter().copied().filter(|goroutine| goroutine.is_plausible() && goroutine.status.is_at_rest()).collect();
    let walked = Stacks::new(memory, functions, None).walk(&resting);
    let whole = walked.iter().filter(|walked| !matches!(walked, Walked::Torn | Walked::Short)).count();
    let begins = |pc: u64| functions.at(pc).is_some_and(|function| function.entry == pc);
    let starts = resting.iter().filter(|goroutine| begins(goroutine.start)).count();
    let plausible = living.iter().filter(|goroutine| goroutine.is_plausible()).count();
    let framed = resting.iter().filter(|it| it.fp > it.sp && it.fp < it.high).count();
    let enough = |part: usize, all: usize| part * 4 >= all * quarters;
    let is_enough = !living.is_empty()
        && enough(plausible, living.len())
        && enough(whole, resting.len())
        && enough(starts, resting.len())
        && (whole > 0 || resting.is_empty());
    is_enough.then_some(whole + starts + plausible + framed)
}
