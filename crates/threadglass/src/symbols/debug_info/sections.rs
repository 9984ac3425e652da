//! The debug sections of a file, in memory of ours.
//!
//! They are read, not mapped: a file that is cut short kills who has it mapped, and the files of a target
//! belong to others.

use flate2::{Decompress, FlushDecompress};
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object, ObjectSection, ReadCache};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// More debug information than this is not read; everything has a name by its symbol all the same.
const MAX_SECTIONS: u64 = 512 << 20;
/// One unit's table of abbreviations is small, but any unit may refer to any place in this section.
const MAX_ABBREVIATIONS: u64 = 64 << 20;

/// A reader over a section.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of one file that describe variables, types and functions.
pub(super) struct Sections(DwarfSections<Vec<u8>>);

/// Whether `file` has debug information of its own.
pub(in crate::symbols) fn has_debug_info(file: &File) -> bool {
    let Ok(file) = file.try_clone() else { return false };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    [".debug_info", ".zdebug_info"].iter().any(|name| elf.section_by_name(name).is_some_and(|found| found.size() > 0))
}

impl Sections {
    /// Reads them. `None` when there are none, when they are too large or packed in a way that is not known.
    pub(super) fn read(file: &File) -> Option<Self> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let mut room = MAX_SECTIONS;
        let sections = DwarfSections::load(|id| {
            if !is_needed(id) {
                return Ok(Vec::new());
            }
            let limit = if id == SectionId::DebugAbbrev { room.min(MAX_ABBREVIATIONS) } else { room };
            let bytes = match elf.section_by_name(id.name()) {
                Some(section) => contents(file, &section, limit).ok_or(())?,
                None => Vec::new(),
            };
            room = room.saturating_sub(bytes.len() as u64);
            Ok::<_, ()>(bytes)
        });
        let sections = Self(sections.ok()?);
        let has_units = matches!(sections.dwarf().units().next(), Ok(Some(_)));
        has_units.then_some(sections)
    }

    /// The sections, for decoding.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.0.borrow(|bytes| EndianSlice::new(bytes, LittleEndian))
    }
}

fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// The bytes of a section, unpacked.
fn contents<'data>(file: &File, section: &impl ObjectSection<'data>, limit: u64) -> Option<Vec<u8>> {
    let range = section.compressed_file_range().ok()?;
    let end = range.offset.checked_add(range.compressed_size)?;
    // What a section says of its size is believed only as far as there is a file.
    if range.uncompressed_size > limit || range.compressed_size > limit || end > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(range.compressed_size).ok()?];
    file.read_exact_at(&mut bytes, range.offset).ok()?;
    match range.format {
        CompressionFormat::None => Some(bytes),
        CompressionFormat::Zlib => inflate(&bytes, usize::try_from(range.uncompressed_size).ok()?),
        _ => None,
    }
}

/// Unpacks `packed`, which says that it is `size` bytes long.
fn inflate(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    // Nothing packs better than 1032 to 1; a size beyond that is a lie that would only cost memory.
    if size / 1032 > packed.len() {
        return None;
    }
    let mut bytes = Vec::with_capacity(size);
    Decompress::new(true).decompress_vec(packed, &mut bytes, FlushDecompress::Finish).ok()?;
    (bytes.len() == size).then_some(bytes)
}
