//! Which part of the code is meant.

use super::ProfileError;
use crate::RemoteAddr;
use crate::elf::Image;
use crate::model::{Histogram, Remedy};
use crate::proc::map_at;
use crate::symbols::Objects;
use crate::target::{Live, Module, Target};
use ::perf::histogram::{LARGEST, Layout};
use std::ops::Range;

/// Bytes of the largest histogram.
const MAX_BYTES: u64 = 256 << 20;

/// A part of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// A function, by the name that its file has for it or that its author wrote.
    Function {
        /// Its name.
        name: String,
        /// The object it is in, where several have one.
        module: Option<String>,
    },
    /// The code of an object, by the name of its file.
    Module(String),
    /// From an address to the end of the code it is in.
    From(RemoteAddr),
}

/// A region that was found.
#[derive(Clone, Debug)]
pub(super) struct FoundRegion {
    pub(super) range: Range<u64>,
    bias: u64,
    what: String,
    /// The object it is in, if it is in one: where that begins, and its path.
    object: Option<(RemoteAddr, Vec<u8>)>,
}

impl FoundRegion {
    /// Whether `live` has the region, and not code of another program at the same addresses.
    pub(super) fn is_in(&self, live: &Live) -> bool {
        let here = live.module_at(RemoteAddr(self.range.start));
        here.map(|module| (module.base, &module.path)) == self.object.as_ref().map(|(base, path)| (*base, path))
    }

    /// Finds `region`, or the program's code, in a process.
    pub(super) fn find(live: &Live, objects: &Objects<'_>, region: Option<&Region>) -> Result<Self, ProfileError> {
        let missing = |text: String| ProfileError::Region(text, None);
        let code_of = |module: Option<&Module>| module.and_then(|module| Self::of_module(live, module));
        match region {
            None => code_of(live.modules().iter().find(|module| live.is_program(module))).ok_or_else(|| {
                let why = "the program's code cannot be found".to_owned();
                ProfileError::Region(why, Some(Remedy::NameRegion))
            }),
            Some(Region::Module(name)) => code_of(live.modules().iter().find(|module| is_called(module, name)))
                .ok_or_else(|| {
                    missing(format!("no file {name} with code is mapped (`cat /proc/{}/maps` shows them)", live.pid()))
                }),
            Some(Region::From(addr)) => {
                let map = map_at(live.maps(), *addr).filter(|map| map.exec);
                let why = || missing(format!("no code is mapped at {addr} (`cat /proc/{}/maps`)", live.pid()));
                let map = map.ok_or_else(why)?;
                let module = live.module_at(*addr);
                let bias = module.map_or(0, |module| bias(live, module));
                let what = format!("code from {addr} on");
                Ok(Self { range: addr.0..map.end.0, bias, what, object: module.map(object) })
            }
            Some(Region::Function { name, module }) => Self::of_function(objects, name, module.as_deref()),
        }
    }

    fn of_module(live: &Live, module: &Module) -> Option<Self> {
        let code = live.maps().iter().filter(|map| map.exec && module.contains(map.start) && map.name == module.path);
        let (from, to) = (code.clone().map(|map| map.start.0).min()?, code.map(|map| map.end.0).max()?);
        let what = format!("code of {}", module.name());
        Some(Self { range: from..to, bias: bias(live, module), what, object: Some(object(module)) })
    }

    fn of_function(objects: &Objects<'_>, name: &str, module: Option<&str>) -> Result<Self, ProfileError> {
        let candidates = objects.all().iter().filter(|one| module.is_none_or(|name| is_called(one.module, name)));
        let mut found = Vec::new();
        for candidate in candidates {
            let Some(bias) = candidate.image().map(Image::bias) else { continue };
            for symbol in candidate.functions_named(name) {
                let start = symbol.addr.0.wrapping_add(bias);
                let range = start..start.saturating_add(symbol.size.max(1));
                let what = format!("{name} in {}", candidate.module.name());
                found.push(Self { range, bias, what, object: Some(object(candidate.module)) });
            }
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => {
                let why = format!("no function {name} is in the symbol tables (is the program stripped?)");
                Err(ProfileError::Region(why, None))
            }
            number => {
                let places: Vec<String> =
                    found.iter().take(4).map(|place| format!("{} at {:#x}", place.what, place.range.start)).collect();
                let why = format!("{number} functions are called {name}: {}", places.join(", "));
                Err(ProfileError::Region(why, Some(Remedy::ChooseFunction)))
            }
        }
    }

    pub(super) fn histogram(&self, scale: u32) -> Result<Histogram, ProfileError> {
        let length = self.range.end - self.range.start;
        let bytes = (u128::from(length) * u128::from(scale)).div_ceil(0x1_0000).next_multiple_of(2);
        let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_BYTES).ok_or_else(|| {
            ProfileError::Region(format!("a histogram of {bytes} bytes is too large"), Some(Remedy::Coarser))
        })?;
        let layout = Layout::of_buffer(bytes, self.range.start, scale);
        let cells = usize::try_from(layout.cells).unwrap_or(0);
        let Range { start, end } = layout.region();
        Ok(Histogram {
            start,
            end,
            scale,
            bias: self.bias,
            what: self.what.clone(),
            cells: vec![0; cells],
            counts: vec![0; cells],
            full: false,
        })
    }
}

impl Histogram {
    /// Counts a tick, as the page says: one that would exceed the largest count ends the counting.
    pub(super) fn count(&mut self, ip: u64) {
        let layout = Layout { offset: self.start, scale: self.scale, cells: self.cells.len() as u64 };
        let Some(cell) = layout.cell(ip).and_then(|cell| usize::try_from(cell).ok()) else { return };
        let (Some(cell), Some(count)) = (self.cells.get_mut(cell), self.counts.get_mut(cell)) else { return };
        *count = count.saturating_add(1);
        match (self.full, *cell) {
            (true, _) => {}
            (false, LARGEST) => self.full = true,
            (false, _) => *cell += 1,
        }
    }
}

fn object(module: &Module) -> (RemoteAddr, Vec<u8>) {
    (module.base, module.path.clone())
}

fn bias(live: &Live, module: &Module) -> u64 {
    Image::load(live, module.base).map_or(0, |image| image.bias())
}

/// Whether a name means this object: its path, its file, or that without what follows `.so`.
fn is_called(module: &Module, name: &str) -> bool {
    let file = module.name();
    module.path == name.as_bytes() || file == name || file.split(".so").next().is_some_and(|stem| stem == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_counter_ends_the_counting() {
        let place = FoundRegion { range: 0x1000..0x1040, bias: 0, what: "code".to_owned(), object: None };
        let mut histogram = place.histogram(0x4000).unwrap();
        assert_eq!((histogram.cells.len(), histogram.start..histogram.end), (8, 0x1000..0x1040));
        for _ in 0..32_767 {
            histogram.count(0x1009);
        }
        histogram.count(0xfff);
        histogram.count(0x1040);
        assert!(!histogram.full && histogram.cells == [0, 32_767, 0, 0, 0, 0, 0, 0]);
        // The tick that would exceed it is lost, and none is counted after it.
        histogram.count(0x100f);
        histogram.count(0x1000);
        assert!(histogram.full && histogram.cells == [0, 32_767, 0, 0, 0, 0, 0, 0]);
        assert_eq!(histogram.counts[..2], [1, 32_768]);
    }

    #[test]
    fn a_histogram_is_not_larger_than_it_may_be() {
        let place = FoundRegion { range: 0..1 << 40, bias: 0, what: "code".to_owned(), object: None };
        assert!(place.histogram(0x1_0000).is_err());
        assert_eq!(place.histogram(2).unwrap().cells.len(), 1 << 24);
        let small = FoundRegion { range: 0x1000..0x1001, bias: 0, what: "code".to_owned(), object: None };
        assert_eq!(small.histogram(2).unwrap().cells.len(), 1);
    }
}
