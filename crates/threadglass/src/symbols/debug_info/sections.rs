//! The debug sections of a file, in memory of ours.
//!
//! They are read, not mapped: a process that has mapped a file is killed when the file is cut short, and the files of
//! a target belong to others. Their bytes are taken from the budget of the look before they are read.

use crate::elf::{HeldBytes, ObjectFile, Section};
use crate::limits::Limits;
use flate2::read::ZlibDecoder;
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};

/// One section may take all of the budget, if nothing else does.
const MAX_SECTION: u64 = 1 << 30;
/// One unit's table of abbreviations is small, but any unit may refer to any place in this section.
const MAX_ABBREVIATIONS: u64 = 64 << 20;
/// Nothing packs better than this; a size beyond that is a lie that would only cost memory.
const BEST_PACKING: u64 = 1032;

/// A reader over a section.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of one file that describe variables, types and functions.
pub(super) struct Sections {
    pub(super) object: ObjectFile,
    sections: DwarfSections<Option<HeldBytes>>,
    lines: OnceLock<Option<HeldBytes>>,
    /// Lists of places of variables, in the old form and in the new one.
    locations: OnceLock<[Option<HeldBytes>; 2]>,
}

/// Whether `file` has debug information of its own.
pub(in crate::symbols) fn has_debug_info(file: &File, limits: &Limits) -> bool {
    ObjectFile::open(file, limits).is_some_and(|object| find(&object, ".debug_info").is_some_and(|it| it.size > 0))
}

/// One debug section of `file`, unpacked; `None` where there is none, or there is no room for it.
pub(crate) fn debug_section(file: &File, name: &str, limit: u64, limits: &Limits) -> Option<HeldBytes> {
    contents(&ObjectFile::open(file, limits)?, name, limit).filter(|held| !held.bytes.is_empty())
}

impl Sections {
    /// Reads them, unless that was done in this look. `None` when there are none, or they cannot be had.
    pub(super) fn of(file: &File, limits: &Limits) -> Option<Arc<Self>> {
        let about = file.metadata().ok()?;
        let key = (about.dev(), about.ino(), about.len(), about.mtime_nsec().wrapping_add(about.mtime() << 30));
        limits.once(key, || Self::read(file, limits))
    }

    fn read(file: &File, limits: &Limits) -> Option<Self> {
        let object = ObjectFile::open(file, limits)?;
        let sections = DwarfSections::load(|id| {
            let is_vital = matches!(id, SectionId::DebugInfo | SectionId::DebugAbbrev);
            let limit = if id == SectionId::DebugAbbrev { MAX_ABBREVIATIONS } else { MAX_SECTION };
            match is_needed(id).then(|| contents(&object, id.name(), limit)).flatten() {
                None if is_vital => Err(()),
                found => Ok(found),
            }
        });
        let sections = sections.ok()?;
        let sections = Self { object, sections, lines: OnceLock::new(), locations: OnceLock::new() };
        let has_units = matches!(sections.dwarf().units().next(), Ok(Some(_)));
        has_units.then_some(sections)
    }

    /// The sections, for decoding.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.sections.borrow(|held| EndianSlice::new(held.as_ref().map_or(&[], |held| &held.bytes), LittleEndian))
    }

    /// The programs that make line numbers; read when they are first asked for.
    pub(super) fn lines(&self) -> &[u8] {
        let lines = self.lines.get_or_init(|| contents(&self.object, ".debug_line", MAX_SECTION));
        lines.as_ref().map_or(&[], |held| &held.bytes)
    }

    /// Where variables are while a function runs: the section of old debug information and that of new one. They are
    /// read when they are first asked for.
    pub(super) fn locations(&self) -> (&[u8], &[u8]) {
        let read =
            || [SectionId::DebugLoc, SectionId::DebugLocLists].map(|id| contents(&self.object, id.name(), MAX_SECTION));
        let [old, new] = self.locations.get_or_init(read);
        (old.as_ref().map_or(&[], |held| &held.bytes), new.as_ref().map_or(&[], |held| &held.bytes))
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

/// A debug section: under its name, or the one that it had when it was packed in the old way.
fn find<'o>(object: &'o ObjectFile, name: &str) -> Option<&'o Section> {
    object.section(name).or_else(|| object.section(&name.replacen(".debug", ".zdebug", 1)))
}

/// The bytes of a section, unpacked. `None` when there is none, or it is left out, which is said.
fn contents(object: &ObjectFile, name: &str, limit: u64) -> Option<HeldBytes> {
    let section = find(object, name)?;
    let what = format!("debug information ({name})");
    let (size, skip) = if section.is_packed() {
        const ZLIB: [u8; 4] = [1, 0, 0, 0];
        let header = object.read(section.offset, section.size.min(24)).filter(|header| header.len() == 24)?;
        if header[..4] != ZLIB {
            object.leave_out(&what, "it is compressed, but not by zlib");
            return None;
        }
        (u64::from_le_bytes(header[8..16].try_into().ok()?), 24)
    } else if object.section(name).is_none() {
        let header = object.read(section.offset, section.size.min(12)).filter(|header| header.starts_with(b"ZLIB"))?;
        (u64::from_be_bytes(header.get(4..12)?.try_into().ok()?), 12)
    } else {
        return object.hold(section, limit, &what);
    };
    let packed = section.size - skip;
    if size / BEST_PACKING > packed {
        object.leave_out(&what, "its claimed length is impossible");
        return None;
    }
    let share = object.room(size, limit, &what)?;
    let bytes = inflate(object, section.offset + skip, packed, size);
    if bytes.is_none() {
        object.leave_out(&what, "it cannot be decompressed");
    }
    Some(HeldBytes::new(bytes?, share))
}

/// Unpacks `packed` bytes at `offset`: `size` of them come out, or nothing.
fn inflate(object: &ObjectFile, offset: u64, packed: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).ok()?).ok()?;
    ZlibDecoder::new(object.part(offset, packed)).take(size).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == size).then_some(bytes)
}
