//! An ELF file that somebody else wrote: its sections, symbols and names, as far as they are worth reading.
//!
//! The file is read in pieces, never mapped: one that shrinks under a mapping would kill us by SIGBUS. Every count and
//! size in it is a claim. It is believed as far as there is a file, and a file may be long and empty: so what is kept
//! of it comes out of the budget of the look, and what is read without being kept has a limit of its own.

use super::program_header::{PT_INTERP, ProgramHeader};
use super::{name_at, u16_at, u32_at, u64_at};
use crate::limits::{Limits, MAX_BYTES, Share};
use crate::sys::file::name_of;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Linked objects have dozens of sections.
const MAX_SECTIONS: u64 = 16 << 10;
/// Names of all sections.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// One symbol table, or its names. The largest programs have some millions of symbols.
const MAX_TABLE: u64 = 128 << 20;
/// One name. Those of templates within templates have some ten thousand bytes.
pub(super) const MAX_NAME: usize = 64 << 10;
/// How much of a name is read at first.
const USUAL_NAME: usize = 256;
/// What the dynamic linker is told.
const MAX_DYNAMIC: u64 = 64 << 10;
const MAX_PATH: u64 = 4096;
const HEADER: usize = 64;
const SECTION_HEADER: usize = 64;
/// One entry of a symbol table.
pub(super) const SYMBOL: usize = 24;

pub(super) const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 0x800;

/// One section of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    name: u32,
    pub(super) kind: u32,
    pub(crate) flags: u64,
    /// Where it is at link time.
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    link: u32,
}

impl Section {
    fn of(header: impl AsRef<[u8]>) -> Self {
        let header = header.as_ref();
        Self {
            name: u32_at(header, 0),
            kind: u32_at(header, 4),
            flags: u64_at(header, 8),
            addr: u64_at(header, 16),
            offset: u64_at(header, 24),
            size: u64_at(header, 32),
            link: u32_at(header, 40),
        }
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.flags & SHF_COMPRESSED != 0
    }
}

/// Which of the two symbol tables, by the kind of its section (`SHT_SYMTAB`, `SHT_DYNSYM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolTable {
    Full = 2,
    Dynamic = 11,
}

impl SymbolTable {
    pub(super) const BOTH: [Self; 2] = [Self::Full, Self::Dynamic];
}

/// One entry of a symbol table.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSymbol {
    pub(super) name: u32,
    pub(super) kind: u8,
    pub(super) section: u16,
    pub(super) value: u64,
    pub(super) size: u64,
}

impl RawSymbol {
    pub(super) fn is_function(&self) -> bool {
        const STT_FUNC: u8 = 2;
        const STT_GNU_IFUNC: u8 = 10;
        matches!(self.kind, STT_FUNC | STT_GNU_IFUNC) && self.is_defined()
    }

    pub(super) fn is_data(&self) -> bool {
        const STT_OBJECT: u8 = 1;
        const STT_COMMON: u8 = 5;
        matches!(self.kind, STT_OBJECT | STT_COMMON) && self.is_defined()
    }

    /// Whether it is a place in the object: not one of the names of files and sections.
    pub(super) fn is_definition(&self) -> bool {
        const STT_SECTION: u8 = 3;
        const STT_FILE: u8 = 4;
        // Common, absolute, and those that are to come.
        const SPECIAL: std::ops::Range<u16> = 0xff00..0xffff;
        !matches!(self.kind, STT_SECTION | STT_FILE) && self.is_defined() && !SPECIAL.contains(&self.section)
    }

    pub(super) fn is_defined(&self) -> bool {
        self.section != 0
    }

    pub(super) fn of(entry: &[u8; SYMBOL]) -> Self {
        Self {
            name: u32_at(entry, 0),
            kind: entry[4] & 0xf,
            section: u16_at(entry, 6),
            value: u64_at(entry, 8),
            size: u64_at(entry, 16),
        }
    }
}

/// Bytes of a file in memory of ours, with their part of the budget.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    pub(crate) bytes: Vec<u8>,
    _share: Share,
}

impl HeldBytes {
    /// Bytes that were made, for which there was room.
    pub(crate) fn new(bytes: Vec<u8>, share: Share) -> Self {
        Self { bytes, _share: share }
    }
}

/// A 64-bit little-endian ELF file.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    file: File,
    length: u64,
    /// By their numbers.
    pub(super) sections: Vec<Section>,
    names: Vec<u8>,
    limits: Limits,
}

impl ObjectFile {
    /// Reads the headers of `file`. `None` when it is no such file.
    pub(crate) fn open(file: &File, limits: &Limits) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        let mut object = Self {
            file: file.try_clone().ok()?,
            length,
            sections: Vec::new(),
            names: Vec::new(),
            limits: limits.clone(),
        };
        let header = object.read(0, HEADER as u64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (start, entry) = (u64_at(&header, 40), u16_at(&header, 58));
        let (count, names) = (u16_at(&header, 60), u16_at(&header, 62));
        if start == 0 || usize::from(entry) != SECTION_HEADER {
            return Some(object);
        }
        // A count or index that has no room in the header is in the first section.
        let first = Section::of(&object.read(start, SECTION_HEADER as u64)?);
        let count = if count == 0 { first.size } else { u64::from(count) };
        let names = if names == 0xffff { first.link as usize } else { usize::from(names) };
        if count > MAX_SECTIONS {
            object.leave_out("sections", format!("the file claims to have {count} of them"));
            return Some(object);
        }
        let headers = object.read(start, count * SECTION_HEADER as u64)?;
        object.sections = headers.chunks_exact(SECTION_HEADER).map(Section::of).collect();
        if let Some(names) = object.sections.get(names).copied() {
            object.names = object.read(names.offset, names.size.min(MAX_SECTION_NAMES)).unwrap_or_default();
        }
        Some(object)
    }

    /// `size` bytes at `offset`. Whoever asks bounds `size`; nothing is kept ready for what is not in the file.
    pub(crate) fn read(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        if offset.checked_add(size)? > self.length {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// The bytes of a section as they are in the file; `what` is said to be left out where there is no room for them.
    pub(crate) fn hold(&self, section: &Section, limit: u64, what: &str) -> Option<HeldBytes> {
        let Section { offset, size, .. } = *section;
        if offset.checked_add(size).is_none_or(|end| end > self.length) {
            self.leave_out(what, "they lie beyond the end of the file");
            return None;
        }
        let share = self.room(size, limit, what)?;
        Some(HeldBytes { bytes: self.read(offset, size)?, _share: share })
    }

    /// A part of the budget for `what`, or the reason why there is none.
    pub(crate) fn room(&self, size: u64, limit: u64, what: &str) -> Option<Share> {
        if size > limit.min(MAX_BYTES) {
            self.leave_out(what, format!("{} MiB are more than one look reads", size >> 20));
            return None;
        }
        let share = self.limits.share(size);
        // A look that has no time left says that once, and for all that it does not read any more.
        if share.is_none() && !self.limits.is_over() {
            self.leave_out(what, "the look has already read as much as it may");
        }
        share
    }

    /// Reads `size` bytes at `offset`, a piece at a time. Where the time is up, they end.
    pub(crate) fn part(&self, offset: u64, size: u64) -> impl Read {
        FilePart { object: self, at: offset, end: offset.saturating_add(size) }
    }

    /// Says that something of this file was left out.
    pub(crate) fn leave_out(&self, what: &str, why: impl Into<String>) {
        self.limits.leave_out(format!("{what} of {}", name_of(&self.file)), why);
    }

    /// The first section of this name that has bytes in the file.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        let has_name = |section: &&Section| {
            let rest = self.names.get(section.name as usize..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        self.sections.iter().find(|section| section.kind != SHT_NOBITS && has_name(section))
    }

    /// Whether a section's name begins with `prefix`.
    pub(super) fn is_named(&self, section: &Section, prefix: &[u8]) -> bool {
        self.names.get(section.name as usize..).is_some_and(|name| name.starts_with(prefix))
    }

    fn table(&self, table: SymbolTable) -> Option<(&Section, &Section)> {
        let found = self.sections.iter().find(|section| section.kind == table as u32)?;
        Some((found, self.sections.get(found.link as usize)?))
    }

    /// Whether the file has a symbol table with something in it.
    pub(crate) fn has_symbols(&self) -> bool {
        // The first one is empty in all tables.
        self.table(SymbolTable::Full).is_some_and(|(table, _)| table.size >= 2 * SYMBOL as u64)
    }

    /// The entries of a symbol table.
    pub(super) fn hold_symbols(&self, table: SymbolTable) -> Option<HeldBytes> {
        self.hold(self.table(table)?.0, MAX_TABLE, "symbols")
    }

    /// The name that begins at `at` of those of a symbol table.
    pub(super) fn name(&self, table: SymbolTable, at: u32) -> Option<Vec<u8>> {
        Some(self.names_of(table)?.get(at)?.into_owned())
    }

    /// The names of a symbol table, read one by one as they are wanted.
    pub(super) fn names_of(&self, table: SymbolTable) -> Option<SymbolNames<'_>> {
        Some(SymbolNames { file: &self.file, strings: self.table(table)?.1, whole: None })
    }

    /// The same, all read at once: for callers that need very many of them.
    pub(super) fn all_names_of(&self, table: SymbolTable) -> Option<SymbolNames<'_>> {
        let mut names = self.names_of(table)?;
        names.whole = Some(self.hold(names.strings, MAX_TABLE, "names of symbols")?);
        Some(names)
    }

    /// The libraries that it asks for.
    pub(crate) fn needed_libraries(&self) -> Vec<String> {
        const SHT_DYNAMIC: u32 = 6;
        const DT_NEEDED: u64 = 1;
        let dynamic = self.sections.iter().find(|section| section.kind == SHT_DYNAMIC);
        let Some(dynamic) = dynamic.filter(|section| section.size <= MAX_DYNAMIC) else { return Vec::new() };
        let Some(strings) = self.sections.get(dynamic.link as usize) else { return Vec::new() };
        let names = SymbolNames { file: &self.file, strings, whole: None };
        let entries = self.read(dynamic.offset, dynamic.size).unwrap_or_default();
        let entries = entries.as_chunks::<16>().0.iter().filter(|entry| u64_at(*entry, 0) == DT_NEEDED);
        let names = entries.filter_map(|entry| names.get(u32::try_from(u64_at(entry, 8)).ok()?));
        names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
    }

    /// The loader that it asks for; `None` where it asks for none.
    pub(crate) fn interpreter(&self) -> Option<Vec<u8>> {
        let header = self.read(0, HEADER as u64)?;
        let (start, count) = (u64_at(&header, 32), u64::from(u16_at(&header, 56)));
        let headers = self.read(start, count * ProgramHeader::SIZE as u64)?;
        let segment = ProgramHeader::decode(&headers).find(|segment| segment.kind == PT_INTERP)?;
        // One that cannot be read is still one.
        Some(self.read(segment.offset, segment.file_size.min(MAX_PATH)).unwrap_or_default())
    }

    /// The processor that it is for.
    pub(crate) fn machine(&self) -> Option<u16> {
        self.read(18, 2).map(|bytes| u16_at(&bytes, 0))
    }
}

struct FilePart<'o> {
    object: &'o ObjectFile,
    at: u64,
    end: u64,
}

impl Read for FilePart<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.object.limits.is_over() {
            return Ok(0);
        }
        let size = (self.end - self.at).min(buf.len() as u64);
        let got = self.object.file.read_at(&mut buf[..size as usize], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// The entries of a table, in its order.
pub(super) fn symbols(table: &HeldBytes) -> impl Iterator<Item = RawSymbol> {
    table.bytes.as_chunks::<SYMBOL>().0.iter().map(RawSymbol::of)
}

/// The names that belong to a symbol table.
pub(super) struct SymbolNames<'a> {
    file: &'a File,
    strings: &'a Section,
    whole: Option<HeldBytes>,
}

impl SymbolNames<'_> {
    /// The name that begins at `at`. `None` where there is none, or it has no end.
    pub(super) fn get(&self, at: u32) -> Option<Cow<'_, [u8]>> {
        if let Some(held) = &self.whole {
            return name_at(&held.bytes, at).map(Cow::Borrowed);
        }
        let room = usize::try_from(self.strings.size.checked_sub(u64::from(at))?).ok()?.min(MAX_NAME);
        let start = self.strings.offset.checked_add(u64::from(at))?;
        for length in [USUAL_NAME, MAX_NAME] {
            let mut bytes = vec![0; length.min(room)];
            self.file.read_exact_at(&mut bytes, start).ok()?;
            if let Some(name) = name_at(&bytes, 0) {
                return Some(Cow::Owned(name.to_vec()));
            }
        }
        None
    }
}
