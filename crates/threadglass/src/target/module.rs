//! Mapped objects, whatever kind of target maps them.

use super::Library;
use crate::RemoteAddr;
use crate::proc::MapEntry;
use std::collections::HashMap;

/// No process has more objects mapped than this; one that claims so is not followed further.
const MAX_MODULES: usize = 4096;

/// A mapped object (executable or library).
#[derive(Clone, Debug)]
pub struct Module {
    /// Path as the target knows it (raw bytes).
    pub path: Vec<u8>,
    /// Where its first byte is mapped.
    pub base: RemoteAddr,
    /// One past its last mapping.
    pub end: RemoteAddr,
    /// The first mapping, which names it in `/proc/PID/map_files`.
    pub(super) first: (RemoteAddr, RemoteAddr),
    pub(super) inode: u64,
}

impl Module {
    /// Last component of the path.
    pub fn name(&self) -> String {
        let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// What it is, by its name.
    pub fn library(&self) -> Library {
        Library::of(&self.name())
    }

    /// Whether `addr` lies between its first and last mapping.
    pub fn contains(&self, addr: RemoteAddr) -> bool {
        (self.base..self.end).contains(&addr)
    }
}

/// Puts the mappings of each file together.
pub(super) fn group(maps: &[MapEntry]) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // A library mapped twice (two namespaces, or the program maps it to read it) is two modules:
    // each begins at an offset of 0.
    let mut open: HashMap<(u64, &[u8]), usize> = HashMap::new();
    for map in maps.iter().filter(|map| map.is_file()) {
        let key = (map.inode, map.name.as_slice());
        match open.get(&key) {
            Some(index) if map.offset != 0 => modules[*index].end = map.end,
            _ if map.offset == 0 && map.read && modules.len() < MAX_MODULES => {
                open.insert(key, modules.len());
                modules.push(Module {
                    path: map.name.clone(),
                    base: map.start,
                    end: map.end,
                    first: (map.start, map.end),
                    inode: map.inode,
                });
            }
            _ => {}
        }
    }
    modules
}
