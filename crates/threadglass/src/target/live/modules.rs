//! The objects a live process has mapped, and the files behind them.

use super::Live;
use crate::RemoteAddr;
use crate::elf::{Image, build_id_of_file};
use crate::proc::MapEntry;
use crate::sys::file;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::path::Path;

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
    first: (RemoteAddr, RemoteAddr),
    inode: u64,
}

impl Module {
    /// Last component of the path.
    pub fn name(&self) -> String {
        let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether `addr` lies between its first and last mapping.
    pub fn contains(&self, addr: RemoteAddr) -> bool {
        (self.base..self.end).contains(&addr)
    }
}

fn group(maps: &[MapEntry]) -> Vec<Module> {
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

impl Live {
    /// Mapped files that may be objects, in address order.
    pub fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| group(self.maps()))
    }

    /// Whether `module` is the program itself: the one that holds its entry point. The name would not
    /// do: it changes when the file is deleted or replaced.
    pub(crate) fn is_program(&self, module: &Module) -> bool {
        self.auxv().and_then(|aux| aux.entry).is_some_and(|entry| module.contains(entry))
    }

    /// Opens the very file that is mapped as `module`, from wherever the target lives and whatever
    /// has become of the path since. `None` when none can be shown to be that file.
    pub fn open_module(&self, module: &Module) -> Option<File> {
        // The kernel's own handle on the mapped file: right by construction, but needs privilege.
        let link = format!("map_files/{:x}-{:x}", module.first.0.0, module.first.1.0);
        if let Ok(file) = file::open_regular_link(&self.proc_dir, &CString::new(link).ok()?) {
            return Some(file);
        }
        let exe = self.task_file(c"exe");
        if self.is_program(module)
            && let Ok(file) = file::open_regular_link(&self.task_dir, &exe)
        {
            return Some(file);
        }
        // By path below the target's root: another file may stand there by now.
        let root = file::open_dir(Path::new(&format!("/proc/{}/root", self.witness))).ok()?;
        let file = file::open_regular_below(&root, &module.path).ok()?;
        let in_memory = Image::load(self, module.base).ok()?.build_id(self);
        let same = match (in_memory, build_id_of_file(&file)) {
            (Some(memory), Some(disk)) => memory == disk,
            _ => std::os::unix::fs::MetadataExt::ino(&file.metadata().ok()?) == module.inode,
        };
        same.then_some(file)
    }
}
