//! Mapped objects, whatever kind of target maps them.

use super::Library;
use crate::RemoteAddr;
use crate::proc::MapEntry;
use std::collections::HashMap;

/// No process has more objects mapped than this; one that claims so is not followed further.
const MAX_MODULES: usize = 4096;

/// How much farther from each other two parts of an object are in memory than in its file, at most: an alignment, or what is
/// zero at the beginning.
const FARTHEST: u64 = 1 << 30;

/// What the kernel keeps of a program's name.
const SHORT_NAME: usize = 15;

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
    /// The name that it was started by, if that is a link to its file.
    pub(super) started_as: Option<String>,
}

impl Module {
    /// Last component of the path; of a program that was started through a link, the name of that.
    pub fn name(&self) -> String {
        self.started_as.clone().unwrap_or_else(|| String::from_utf8_lossy(last_part(&self.path)).into_owned())
    }

    /// Last component of the path.
    pub(crate) fn file_name(&self) -> String {
        String::from_utf8_lossy(last_part(&self.path)).into_owned()
    }

    /// What it is, by the name of its file.
    pub fn library(&self) -> Library {
        Library::of(&String::from_utf8_lossy(last_part(&self.path)))
    }

    /// Notes the name that the program was started by. The kernel's name of the process and the first word of its command
    /// line must agree on it: a process can change either.
    pub(super) fn note_start(&mut self, kernels: &[u8], command: impl FnOnce() -> Vec<u8>) {
        let shorten = |name: &[u8]| name[..name.len().min(SHORT_NAME)].to_vec();
        if kernels.is_empty() || shorten(last_part(&self.path)) == kernels {
            return;
        }
        let command = command();
        let first = command.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
        let name = last_part(first);
        self.started_as = (shorten(name) == kernels).then(|| String::from_utf8_lossy(name).into_owned());
    }

    /// Whether `addr` lies between its first and last mapping.
    pub fn contains(&self, addr: RemoteAddr) -> bool {
        (self.base..self.end).contains(&addr)
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether `map` is a part of `module` that the loader mapped, rather than one that the program mapped once more elsewhere.
fn is_part(map: &MapEntry, module: &Module) -> bool {
    let in_memory = map.start.0.saturating_sub(module.base.0);
    map.offset != 0 && in_memory.saturating_sub(map.offset) < FARTHEST
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
            Some(index) if is_part(map, &modules[*index]) => modules[*index].end = map.end,
            _ if map.offset == 0 && map.read && modules.len() < MAX_MODULES => {
                open.insert(key, modules.len());
                modules.push(Module {
                    path: map.name.clone(),
                    base: map.start,
                    end: map.end,
                    first: (map.start, map.end),
                    inode: map.inode,
                    started_as: None,
                });
            }
            _ => {}
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, offset: u64) -> MapEntry {
        let line = format!("{start:x}-{end:x} r-xp {offset:08x} fe:00 7 /bin/prog");
        crate::proc::parse_maps(line.as_bytes()).0.remove(0)
    }

    #[test]
    fn a_part_that_is_mapped_again_elsewhere_is_no_part() {
        let parts = [map(0x40_0000, 0x50_0000, 0), map(0x70_0000, 0x80_0000, 0x10_0000)];
        let again = map(0x7f00_0000_0000, 0x7f00_0001_0000, 0x10_0000);
        let modules = group(&[&parts[..], &[again]].concat());
        assert_eq!(modules.len(), 1);
        assert_eq!((modules[0].base, modules[0].end), (RemoteAddr(0x40_0000), RemoteAddr(0x80_0000)));
    }

    #[test]
    fn the_name_that_a_program_was_started_by() {
        let name = |kernels: &str, command: &str| {
            let mut program = group(&[map(0x40_0000, 0x50_0000, 0)]).remove(0);
            program.note_start(kernels.as_bytes(), || command.as_bytes().to_vec());
            program.name()
        };
        assert_eq!(name("prog", "/bin/prog\0-x"), "prog");
        assert_eq!(name("link", "/usr/bin/link\0-x"), "link");
        assert_eq!(name("link", "link *:6379"), "link", "a title that the program gave itself");
        assert_eq!(name("a-name-of-16-ch", "./a-name-of-16-chars"), "a-name-of-16-chars");
        assert_eq!(name("renamed", "prog"), "prog", "by itself");
        assert_eq!(name("prog", "renamed"), "prog");
        assert_eq!(name("", ""), "prog");
    }
}
