//! Unwind tables for debuggers (`.debug_frame`): of code that was built without those that programs need themselves.
//!
//! They are in no memory, only in the object's file or in its debug file.

use super::cfi::{BATCH, Bytes, MAX_FUNCTIONS, MAX_SEARCHED, UnwindRow, decode_row};
use super::entries::Fault;
use crate::elf::{HeldBytes, Image};
use crate::limits::{Limits, Share};
use crate::symbols::{MappedObject, debug_section};
use gimli::{BaseAddresses, CieOrFde, DebugFrame, DebugFrameOffset, LittleEndian, UnwindSection};

/// The table of one object.
pub(super) struct DebugFrameTable {
    bytes: HeldBytes,
    /// First and one past the last link-time address of each function, and where its entry is; sorted.
    entries: Vec<(u64, u64, usize)>,
    _share: Share,
    bias: u64,
}

impl DebugFrameTable {
    /// Reads the table of `object`; `None` where it has none, or what is there is left out.
    pub(super) fn load(object: &MappedObject<'_>, limits: &Limits) -> Option<Self> {
        let bias = object.image().map(Image::bias)?;
        let mut files = [object.file(), object.debug_file()].into_iter().flatten();
        let bytes = files.find_map(|file| debug_section(file, ".debug_frame", MAX_SEARCHED, limits))?;
        let entries = entries(&section(&bytes.bytes), limits);
        let share = limits.share(entries.len() as u64 * 24).filter(|_| !entries.is_empty())?;
        Some(Self { bytes, entries, _share: share, bias })
    }

    /// The row for the instruction at `addr`.
    pub(super) fn row(&self, addr: u64) -> Result<Option<UnwindRow>, Fault> {
        let offset = addr.wrapping_sub(self.bias);
        let behind = self.entries.partition_point(|(start, ..)| *start <= offset);
        let Some((_, _, at)) = self.entries[..behind].last().filter(|(_, end, _)| offset < *end) else {
            return Ok(None);
        };
        let (section, bases) = (section(&self.bytes.bytes), BaseAddresses::default());
        let entry = section.fde_from_offset(&bases, DebugFrameOffset(*at), DebugFrame::cie_from_offset);
        let Ok(entry) = entry else { return Ok(None) };
        let row = decode_row(&section, &bases, &entry, offset)?;
        Ok(row.map(|row| {
            let moved = |addr: u64| addr.wrapping_add(self.bias);
            UnwindRow { function: (moved(row.function.0), moved(row.function.1)), lsda: None, ..row }
        }))
    }
}

fn section(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section
}

/// Finds all entries. A corrupt one ends the search.
fn entries(section: &DebugFrame<Bytes<'_>>, limits: &Limits) -> Vec<(u64, u64, usize)> {
    let bases = BaseAddresses::default();
    let mut found = Vec::new();
    let mut all = section.entries(&bases);
    let mut number = 0_usize;
    while let Ok(Some(entry)) = all.next() {
        number += 1;
        if found.len() >= MAX_FUNCTIONS || (number.is_multiple_of(BATCH) && limits.is_over()) {
            break;
        }
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(DebugFrame::cie_from_offset)
        {
            found.push((entry.initial_address(), entry.end_address(), entry.offset()));
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = entries(&section(&bytes), &Limits::default());
        }
    }
}
