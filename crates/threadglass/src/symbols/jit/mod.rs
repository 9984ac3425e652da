//! Names of code that a process generated at run time, from the files that it writes for profilers.
//!
//! Node, Java and others write a list of functions to `/tmp/perf-PID.map`, or a binary file `jit-PID.dump` of which they
//! map the first page, so that it can be found. Code comes and goes: of several functions at one address the last
//! is meant.

mod dump;
mod map;

use crate::limits::Limits;
use crate::target::{Live, Target};
use std::fs::File;

/// A function that was generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitFunction {
    /// Its name, as the file has it.
    pub name: String,
    /// Its first address.
    pub start: u64,
}

/// The files of one process.
#[derive(Debug, Default)]
pub struct JitFiles {
    map: Option<(String, File)>,
    dump: Option<(String, File)>,
}

impl JitFiles {
    /// Opens those that there are by now. They are read later, when more is in them.
    pub(crate) fn open(live: &Live) -> Self {
        let pid = live.inner_pid();
        let (map, dump) = (format!("perf-{pid}.map"), format!("jit-{pid}.dump"));
        let end = format!("/{dump}");
        let marker = live.maps().iter().find(|map| map.name.ends_with(end.as_bytes()));
        Self {
            map: live.open_own_file(format!("/tmp/{map}").as_bytes()).map(|file| (map, file)),
            dump: marker.and_then(|marker| live.open_own_mapping(marker)).map(|file| (dump, file)),
        }
    }

    /// A list and a dump, wherever they come from.
    #[cfg(feature = "internals")]
    pub fn from_files(map: File, dump: File) -> Self {
        Self { map: Some(("map".to_owned(), map)), dump: Some(("dump".to_owned(), dump)) }
    }

    /// Whether there are none.
    pub(crate) fn are_missing(&self) -> bool {
        self.map.is_none() && self.dump.is_none()
    }

    /// The function at each of `addrs`, and the name of the file that has it.
    pub fn functions_at(&self, addrs: &[u64], limits: &Limits) -> Vec<Option<(JitFunction, String)>> {
        let mut found = vec![None; addrs.len()];
        type Read = fn(&File, &mut WantedFunctions, &Limits, &str);
        let files: [(&Option<(String, File)>, Read); 2] = [(&self.dump, dump::read), (&self.map, map::read)];
        for (file, read) in files {
            let Some((name, file)) = file else { continue };
            let mut wanted = WantedFunctions::new(addrs);
            read(file, &mut wanted, limits, name);
            for (slot, function) in found.iter_mut().zip(wanted.found).filter(|(slot, _)| slot.is_none()) {
                *slot = function.map(|function| (function, name.clone()));
            }
        }
        found
    }
}

/// Addresses that are looked for, and what was found.
struct WantedFunctions {
    /// Sorted, each with its place in `found`.
    addrs: Vec<(u64, usize)>,
    found: Vec<Option<JitFunction>>,
    /// Names that may still be kept: a file may have the same place again and again.
    left: usize,
}

/// Names that are read for one file.
const MAX_FOUND: usize = 1 << 22;
/// Bytes of a name.
const MAX_NAME: usize = 1024;

impl WantedFunctions {
    fn new(addrs: &[u64]) -> Self {
        let mut sorted: Vec<(u64, usize)> = addrs.iter().enumerate().map(|(index, addr)| (*addr, index)).collect();
        sorted.sort_unstable();
        Self { addrs: sorted, found: vec![None; addrs.len()], left: MAX_FOUND }
    }

    /// Takes note of a function. It takes the place of what was there before.
    fn put(&mut self, start: u64, size: u64, name: &[u8]) {
        let from = self.addrs.partition_point(|(addr, _)| *addr < start);
        for (_, index) in self.addrs[from..].iter().take_while(|(addr, _)| addr - start < size) {
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned();
            self.found[*index] = Some(JitFunction { name, start });
        }
    }
}
