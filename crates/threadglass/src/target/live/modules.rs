//! The mappings of a live process, asked for one by one.

use super::{Live, task_file};
use crate::RemoteAddr;
use crate::proc::MapEntry;
use crate::sys::file;
use crate::sys::map_query::{ANY, FILE_BACKED, query};
use std::fs::File;

/// Beyond this many mappings of files, one reading of the whole list is cheaper than asking for each.
const MAX_MAPPINGS: usize = 16_384;

impl Live {
    /// The mappings of files alone, where the kernel can be asked for them: a process with thousands of
    /// threads has thousands of others. `None` when all have to be read.
    pub(super) fn file_mappings(&self) -> Option<Vec<MapEntry>> {
        let maps = self.open_maps()?;
        let mut found = Vec::new();
        let mut from = RemoteAddr::NULL;
        while let Some(entry) = query(&maps, from, FILE_BACKED).ok()? {
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
        let holder = query(&maps, addr, ANY).ok()?.filter(|map| map.contains(addr))?;
        // If nothing else is mapped from the lowest address on, there is all the room that is asked for.
        let lowest = top.checked_sub(size)?;
        let first = query(&maps, lowest, ANY).ok()??;
        (first.start == holder.start).then_some((holder.end, size))
    }
}
