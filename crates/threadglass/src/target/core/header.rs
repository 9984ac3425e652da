//! The ELF header and the program headers, of a core and of the files it names.

use super::error::{CoreFault, machine_name};
use super::source::ByteSource;
use crate::arch::ELF_MACHINE;
use crate::elf::{ProgramHeader, u16_at, u32_at, u64_at};
use std::path::Path;

pub(super) const PF_X: u32 = 1;
pub(super) const PF_W: u32 = 2;
pub(super) const PF_R: u32 = 4;

/// No process has more mappings; a core that claims more is believed this far.
pub(super) const MAX_OF_CORE: u64 = 1 << 20;
/// No object has more segments.
pub(super) const MAX_OF_OBJECT: u64 = 256;
/// In place of a count that does not fit in 16 bits: the first section header has it then.
const MANY: u16 = 0xffff;

/// The table of program headers.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) entries: Vec<ProgramHeader>,
    /// How many the file claims to have; more than there are when it is cut short.
    pub(super) claimed: u64,
}

/// Checks that `source` is a core of this machine; `path` is for messages.
pub(super) fn check_core(source: &dyn ByteSource, path: &Path) -> Result<(), CoreFault> {
    if source.size() == 0 {
        return Err(CoreFault::Empty);
    }
    let mut header = [0; 64];
    let got = source.read_at(0, &mut header);
    if !header.starts_with(b"\x7fELF") {
        return Err(CoreFault::not_elf(&header[..got], path));
    }
    if got < header.len() {
        return Err(CoreFault::NoThreads(too_short(source.size())));
    }
    let (is_32_bit, machine) = (header[4] == 1, u16_at(&header, 18));
    match u16_at(&header, 16) {
        4 => {}
        1 => return Err(CoreFault::NotACore("an object file")),
        2 => return Err(CoreFault::NotACore("a program")),
        // The kinds of a library and of a position-independent program are one.
        3 => return Err(CoreFault::NotACore("a program or library")),
        _ => return Err(CoreFault::NotACore("an ELF file of another kind")),
    }
    if is_32_bit || header[5] != 1 || machine != ELF_MACHINE {
        return Err(CoreFault::WrongMachine(machine_name(machine, is_32_bit)));
    }
    Ok(())
}

/// Why a core that is cut short has nothing to show.
pub(super) fn too_short(size: u64) -> String {
    format!(
        "the file ends after {size} bytes, before its threads (it was cut short: `ulimit -c unlimited`, a larger disk)"
    )
}

impl Headers {
    /// Reads the program headers of a 64-bit little-endian ELF file, `most` at most; `None` when it is
    /// not one.
    pub(super) fn read(source: &dyn ByteSource, most: u64) -> Option<Self> {
        let mut header = [0; 64];
        if !source.read_whole(0, &mut header) || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let offset = u64_at(&header, 32);
        if usize::from(u16_at(&header, 54)) != ProgramHeader::SIZE {
            return None;
        }
        let claimed = match u16_at(&header, 56) {
            MANY => {
                let mut section = [0; 64];
                let found = source.read_whole(u64_at(&header, 40), &mut section);
                // sh_info
                u64::from(if found { u32_at(&section, 44) } else { u32::from(MANY) })
            }
            count => u64::from(count),
        };
        let there = source.size().saturating_sub(offset) / ProgramHeader::SIZE as u64;
        let mut table = vec![0; claimed.min(most).min(there) as usize * ProgramHeader::SIZE];
        let got = source.read_at(offset, &mut table);
        Some(Self { entries: ProgramHeader::decode(&table[..got]).collect(), claimed })
    }

    pub(super) fn of_kind(&self, kind: u32) -> impl Iterator<Item = &ProgramHeader> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}
