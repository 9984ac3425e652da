//! The memory that a core holds.

use super::header::Headers;
use super::source::ByteSource;
use crate::RemoteAddr;
use crate::elf::{PT_LOAD, ProgramHeader};
use crate::memory::{Memory, ReadError, read_pieces};

/// One mapping of the process, and the bytes of it that the core has.
///
/// The kernel and gcore leave out what a file still has (code, constants) and what a filter excludes:
/// such bytes are *absent*, not zero, although they lie inside the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// One past the last byte that is in the file.
    pub(super) present_end: u64,
    /// Where `start` is in the file.
    offset: u64,
    pub(super) flags: u32,
}

impl Segment {
    /// A mapping of which the core has no byte.
    pub(super) fn absent(start: u64, end: u64, flags: u32) -> Self {
        Self { start, end, present_end: start, offset: 0, flags }
    }
}

/// The core's own bytes, without those of the files it names.
pub(super) struct Segments {
    pub(super) source: Box<dyn ByteSource>,
    /// The mappings, in address order, none over another.
    pub(super) table: Vec<Segment>,
    /// Some were laid over others.
    pub(super) overlapping: bool,
    /// Bytes that the headers promise and the file lacks.
    pub(super) missing: u64,
}

impl Segments {
    /// Takes the table from `headers`, which are those of `source`.
    pub(super) fn new(headers: &Headers, source: Box<dyn ByteSource>) -> Self {
        let size = source.size();
        let mut segments = Self { source, table: Vec::new(), overlapping: false, missing: 0 };
        let mut found: Vec<_> = headers.of_kind(PT_LOAD).filter_map(|load| segments.placed(load, size)).collect();
        found.sort_by_key(|segment| segment.start);
        segments.table.reserve(found.len());
        let mut end = 0;
        for mut segment in found {
            // Of two that overlap, the one that starts first has the bytes they share.
            if segment.start < end {
                segments.overlapping = true;
                if segment.end <= end {
                    continue;
                }
                segment.offset = segment.offset.saturating_add(end - segment.start);
                segment.start = end;
                segment.present_end = segment.present_end.max(end);
            }
            end = segment.end;
            segments.table.push(segment);
        }
        segments
    }

    fn placed(&mut self, load: &ProgramHeader, size: u64) -> Option<Segment> {
        let length = load.memory_size.max(load.file_size);
        let end = load.vaddr.checked_add(length).filter(|_| length > 0)?;
        let present = load.file_size.min(size.saturating_sub(load.offset));
        self.missing = self.missing.saturating_add(load.file_size - present);
        Some(Segment {
            start: load.vaddr,
            end,
            present_end: load.vaddr + present,
            offset: load.offset,
            flags: load.flags,
        })
    }

    /// The last one that starts at or below `addr`.
    fn below(&self, addr: u64) -> Option<(usize, &Segment)> {
        let index = self.table.partition_point(|segment| segment.start <= addr).checked_sub(1)?;
        Some((index, &self.table[index]))
    }

    /// Reads what the core has at `addr`, within one mapping; 0 where it has nothing.
    pub(super) fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        let Some((_, segment)) = self.below(addr).filter(|(_, segment)| addr < segment.present_end) else { return 0 };
        let there = usize::try_from(segment.present_end - addr).unwrap_or(usize::MAX).min(buf.len());
        match segment.offset.checked_add(addr - segment.start) {
            Some(offset) => self.source.read_at(offset, &mut buf[..there]),
            None => 0,
        }
    }

    /// Where the core's bytes begin again after `addr`, at which it has none.
    pub(super) fn next_present(&self, addr: u64) -> u64 {
        let from = self.below(addr).map_or(0, |(index, _)| index + 1);
        let has_bytes = |segment: &&Segment| segment.present_end > segment.start;
        // Absent ones follow one another in small numbers only; a reader asks for far less than this.
        self.table[from..].iter().take(64).find(has_bytes).map_or(u64::MAX, |segment| segment.start)
    }
}

impl Memory for Segments {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        read_pieces(addr, buf, |at, rest| self.read(at, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(vaddr: u64, offset: u64, file_size: u64, memory_size: u64) -> ProgramHeader {
        ProgramHeader { kind: PT_LOAD, flags: 6, offset, vaddr, file_size, memory_size }
    }

    fn read(loads: Vec<ProgramHeader>, addr: u64, len: usize) -> Option<Vec<u8>> {
        let source: Vec<u8> = (0..100).collect();
        let claimed = loads.len() as u64;
        let memory = Segments::new(&Headers { entries: loads, claimed }, Box::new(source));
        let mut buf = vec![0; len];
        memory.read_at(RemoteAddr(addr), &mut buf).ok().map(|n| buf[..n].to_vec())
    }

    #[test]
    fn a_read_goes_on_in_the_next_mapping_but_not_past_what_is_absent() {
        assert_eq!(read(vec![load(0x1002, 20, 2, 2), load(0x1000, 10, 2, 2)], 0x1001, 8), Some(vec![11, 20, 21]));
        assert_eq!(read(vec![load(0x1000, 10, 2, 4), load(0x1004, 20, 2, 2)], 0x1000, 8), Some(vec![10, 11]));
    }

    #[test]
    fn of_overlapping_ones_the_first_answers_and_nothing_wraps() {
        let loads =
            vec![load(0x1000, 10, 4, 4), load(0x1002, 20, 8, 8), load(0x1001, 30, 1, 1), load(u64::MAX, 0, 9, 9)];
        assert_eq!(read(loads, 0x1000, 16), Some(vec![10, 11, 12, 13, 22, 23, 24, 25, 26, 27]));
        assert_eq!(read(vec![load(0x1000, u64::MAX, 4, 4)], 0x1000, 4), None);
        assert_eq!(read(vec![load(0x1000, 98, 4, 4)], 0x1000, 4), Some(vec![98, 99]));
    }
}
