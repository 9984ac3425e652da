//! The objects a live process has mapped, and the files behind them.

use super::{Live, task_file};
use crate::RemoteAddr;
use crate::elf::{Image, build_id_of_file};
use crate::proc::MapEntry;
use crate::sys::file;
use crate::sys::map_query::{MappingKind, query};
use crate::target::Target;
use crate::target::module::{Module, group};
use std::ffi::CString;
use std::fs::File;
use std::path::Path;

/// Beyond this many mappings of files, one reading of the whole list is cheaper than asking for each.
const MAX_MAPPINGS: usize = 16_384;

impl Live {
    /// Mapped files that may be objects, in address order.
    pub fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| match self.file_mappings() {
            Some(maps) => group(&maps),
            None => group(self.maps()),
        })
    }

    /// The mappings of files alone, where the kernel can be asked for them: a process with thousands of
    /// threads has thousands of others. `None` when all have to be read.
    fn file_mappings(&self) -> Option<Vec<MapEntry>> {
        let maps = self.open_maps()?;
        let mut found = Vec::new();
        let mut from = RemoteAddr::NULL;
        while let Some(entry) = query(&maps, from, MappingKind::File).ok()? {
            from = entry.end;
            found.push(entry);
            if found.len() > MAX_MAPPINGS {
                return None;
            }
        }
        Some(found)
    }

    fn open_maps(&self) -> Option<File> {
        file::open_at(&self.task_dir, &task_file(self.witness, "maps")).ok()
    }

    /// Of the mapping that holds `addr`: its end, and the room from `top` down to the mapping below it, as
    /// far as `size`. Asks for single mappings where that is possible.
    pub(super) fn query_room(&self, addr: RemoteAddr, top: RemoteAddr, size: u64) -> Option<(RemoteAddr, u64)> {
        let maps = self.open_maps()?;
        let holder = query(&maps, addr, MappingKind::Any).ok()?.filter(|map| map.contains(addr))?;
        // If nothing else is mapped from the lowest address on, there is all the room that is asked for.
        let lowest = top.checked_sub(size)?;
        let first = query(&maps, lowest, MappingKind::Any).ok()??;
        (first.start == holder.start).then_some((holder.end, size))
    }

    /// Opens the very file that is mapped as `module`, from wherever the target lives and whatever
    /// has become of the path since. `None` when none can be shown to be that file.
    pub fn open_module(&self, module: &Module) -> Option<File> {
        // The kernel's own handle on the mapped file: right by construction, but needs privilege.
        let link = format!("map_files/{:x}-{:x}", module.first.0.0, module.first.1.0);
        if let Ok(file) = file::open_regular_link(&self.proc_dir, &CString::new(link).ok()?) {
            return Some(file);
        }
        let exe = task_file(self.witness, "exe");
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
