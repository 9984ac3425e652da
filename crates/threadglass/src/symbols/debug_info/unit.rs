//! Units: the pieces that debug information comes in.

use super::{DebugEntry, Language, Query, Slice, Unit};
use gimli::{
    AttributeValue, DebugAddrBase, DebugInfoOffset, DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase,
    LittleEndian, Reader, Section, UnitOffset, constants as dw,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Decoded units that one question keeps.
const MAX_PARSED: usize = 64;
/// One table of abbreviations, as it is in the file. Those of real units take some kilobytes.
const MAX_TABLE: usize = 1 << 20;
/// All that are kept, as they are in the file: decoded they take about thirty times as much.
const MAX_TABLES: usize = 2 << 20;
/// Entries below one function or type that are read: methods and inner types lie among the members of a type.
const MAX_ENTRIES: usize = 1 << 17;
/// Attributes of one entry. Those without a byte of their own in the entry would cost it nothing.
const MAX_ATTRIBUTES: usize = 256;

/// Tables of abbreviations that were decoded, by their place.
#[derive(Default)]
pub(super) struct Abbreviations {
    tables: HashMap<usize, Arc<gimli::Abbreviations>>,
    /// What they take in the file.
    bytes: usize,
}

/// A unit, ready to read its entries.
pub(super) struct Parsed<'a> {
    pub(super) index: usize,
    /// Where it begins in the section.
    pub(super) start: usize,
    pub(super) unit: Unit<'a>,
    pub(super) language: Language,
}

impl<'a> Query<'a> {
    /// The unit number `index`.
    pub(super) fn unit(&mut self, index: usize) -> Option<Arc<Parsed<'a>>> {
        if let Some(parsed) = self.parsed.get(&index) {
            return Some(parsed.clone());
        }
        if self.is_exhausted() {
            return None;
        }
        let parsed = Arc::new(self.parse(index)?);
        if self.parsed.len() >= MAX_PARSED {
            self.parsed.clear();
        }
        self.parsed.insert(index, parsed.clone());
        Some(parsed)
    }

    /// The table of abbreviations at `place`.
    fn abbreviations(&mut self, place: usize) -> Option<Arc<gimli::Abbreviations>> {
        if let Some(known) = self.decoded.abbreviations.tables.get(&place) {
            return Some(known.clone());
        }
        let section = self.dwarf.debug_abbrev.reader().slice();
        let Some(length) = table_length(section.get(place..)?) else {
            self.leave_out("parts of the debug information", "a table of abbreviations is too large");
            return None;
        };
        if self.decoded.abbreviations.bytes + length > MAX_TABLES {
            // The units have them too.
            self.parsed.clear();
            self.decoded.abbreviations = Abbreviations::default();
        }
        let table = gimli::DebugAbbrev::new(section.get(..place + length)?, gimli::LittleEndian);
        let read = Arc::new(table.abbreviations(gimli::DebugAbbrevOffset(place)).ok()?);
        self.decoded.abbreviations.bytes += length;
        self.decoded.abbreviations.tables.insert(place, read.clone());
        Some(read)
    }

    /// What gimli does for a unit, without its line numbers: their section is not read.
    fn parse(&mut self, index: usize) -> Option<Parsed<'a>> {
        let start = self.source.units.get(index)?.start;
        let header = self.dwarf.unit_header(DebugInfoOffset(start)).ok()?;
        let abbreviations = self.abbreviations(header.debug_abbrev_offset().0)?;
        let (encoding, file_type) = (header.encoding(), self.dwarf.file_type);
        let mut unit = Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
            addr_base: DebugAddrBase(0),
            loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
            line_program: None,
            dwo_id: None,
            header,
        };
        let root = unit.entry(unit.header.root_offset()).ok()?;
        for attribute in root.attrs() {
            match attribute.value() {
                AttributeValue::DebugStrOffsetsBase(base) => unit.str_offsets_base = base,
                AttributeValue::DebugAddrBase(base) => unit.addr_base = base,
                AttributeValue::DebugRngListsBase(base) => unit.rnglists_base = base,
                AttributeValue::DebugLocListsBase(base) => unit.loclists_base = base,
                _ => {}
            }
        }
        if let Some(low) = root.attr_value(dw::DW_AT_low_pc)
            && let Ok(Some(low)) = self.dwarf.attr_address(&unit, low)
        {
            unit.low_pc = low;
        }
        let language = language(root.attr_value(dw::DW_AT_language));
        Some(Parsed { index, start, unit, language })
    }

    /// Calls `visit` with the entry at `offset` of the unit and the entries below it, and how deep each lies. Where
    /// `visit` gives `false`, entries below are passed over; `None` ends the walk. Gives whether the end was reached.
    pub(super) fn walk(
        &mut self,
        parsed: &Parsed<'a>,
        offset: usize,
        mut visit: impl FnMut(&mut Self, isize, &DebugEntry<'a>) -> Option<bool>,
    ) -> gimli::Result<bool> {
        let mut entries = parsed.unit.entries_raw(Some(UnitOffset(offset)))?;
        let mut entry = DebugEntry::null();
        let mut passed_over: Option<isize> = None;
        for _ in 0..MAX_ENTRIES {
            let depth = entries.next_depth();
            // An entry that cannot be decoded ends the list; what came before it is good.
            let Ok(is_entry) = entries.read_entry(&mut entry) else { return Ok(true) };
            if is_entry && passed_over.is_none_or(|above| depth <= above) {
                let Some(is_open) = visit(self, depth, &entry) else { return Ok(false) };
                passed_over = (!is_open).then_some(depth);
            }
            if entries.is_empty() || entries.next_depth() <= 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the entry is an inlined function or a block that has code at `pc`.
    pub(super) fn is_inner_code(&self, parsed: &Parsed<'a>, entry: &DebugEntry<'a>, pc: u64) -> bool {
        let is_block = entry.tag() == dw::DW_TAG_lexical_block;
        if !is_block && entry.tag() != dw::DW_TAG_inlined_subroutine {
            return false;
        }
        let ranges = self.code_ranges(parsed, entry.attrs());
        // A block without code of its own only groups names.
        (is_block && ranges.is_empty()) || ranges.iter().any(|(from, to)| (*from..*to).contains(&pc))
    }
}

/// How many bytes the table at the front of `bytes` takes; `None` where it is larger than any.
fn table_length(bytes: &[u8]) -> Option<usize> {
    let table = &bytes[..bytes.len().min(MAX_TABLE)];
    let mut rest = Slice::new(table, LittleEndian);
    loop {
        match rest.read_uleb128() {
            Ok(0) => return Some(table.len() - rest.len()),
            Ok(_) => skip_abbreviation(&mut rest)?,
            // A table that ends with its section is read up to there.
            Err(_) => return (bytes.len() <= MAX_TABLE).then_some(bytes.len()),
        }
    }
}

/// Moves behind an abbreviation whose number was read. `None` where it does not end, or has too many attributes.
fn skip_abbreviation(rest: &mut Slice<'_>) -> Option<()> {
    // The tag, and whether there are entries below.
    rest.skip_leb128().ok()?;
    rest.skip_leb128().ok()?;
    for _ in 0..=MAX_ATTRIBUTES {
        let (name, form) = (rest.read_uleb128().ok()?, rest.read_uleb128().ok()?);
        if (name, form) == (0, 0) {
            return Some(());
        }
        if form == u64::from(dw::DW_FORM_implicit_const.0) {
            rest.skip_leb128().ok()?;
        }
    }
    None
}

fn language(value: Option<AttributeValue<Slice<'_>>>) -> Language {
    // C23 came with DWARF 6.
    const C23: gimli::DwLang = gimli::DwLang(0x3e);
    match value {
        Some(AttributeValue::Language(dw::DW_LANG_Rust)) => Language::Rust,
        Some(AttributeValue::Language(
            dw::DW_LANG_C | dw::DW_LANG_C89 | dw::DW_LANG_C99 | dw::DW_LANG_C11 | dw::DW_LANG_C17 | C23,
        )) => Language::C,
        _ => Language::Other,
    }
}
