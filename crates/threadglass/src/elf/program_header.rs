//! Program headers: the segments of an object or a core.

use super::{u32_at, u64_at};

pub(crate) const PT_LOAD: u32 = 1;
pub(super) const PT_DYNAMIC: u32 = 2;
pub(super) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(super) const PT_TLS: u32 = 7;
pub(super) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(super) const PT_GNU_RELRO: u32 = 0x6474_e552;

/// One program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
}

impl ProgramHeader {
    /// Bytes of one in a file.
    pub(crate) const SIZE: usize = 56;

    /// Those in a table; what is left of the last one does not count.
    pub(crate) fn decode(table: &[u8]) -> impl Iterator<Item = Self> {
        table.chunks_exact(Self::SIZE).map(|bytes| Self {
            kind: u32_at(bytes, 0),
            flags: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
            vaddr: u64_at(bytes, 16),
            file_size: u64_at(bytes, 32),
            memory_size: u64_at(bytes, 40),
        })
    }
}
