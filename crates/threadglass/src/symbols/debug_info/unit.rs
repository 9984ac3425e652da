//! Units: the pieces that debug information comes in.

use super::{Language, Session, Slice, Unit};
use gimli::{AttributeValue, DebugInfoOffset, DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase};
use gimli::{DebugAddrBase, constants as dw};
use std::sync::Arc;

/// Decoded units that one question keeps.
const MAX_PARSED: usize = 64;
/// Tables of abbreviations that are kept.
const MAX_TABLES: usize = 256;

/// A unit, ready to read its entries.
pub(super) struct Parsed<'a> {
    pub(super) index: usize,
    pub(super) unit: Unit<'a>,
    pub(super) language: Language,
}

impl<'a> Session<'a> {
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

    /// What gimli does for a unit, without its line numbers: their section is not read.
    fn parse(&mut self, index: usize) -> Option<Parsed<'a>> {
        let header = self.dwarf.unit_header(DebugInfoOffset(self.units.get(index)?.start)).ok()?;
        let place = header.debug_abbrev_offset().0;
        let abbreviations = match self.known.abbreviations.get(&place) {
            Some(known) => known.clone(),
            None => {
                let read = self.dwarf.abbreviations(&header).ok()?;
                if self.known.abbreviations.len() >= MAX_TABLES {
                    self.known.abbreviations.clear();
                }
                self.known.abbreviations.insert(place, read.clone());
                read
            }
        };
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
                _ => {}
            }
        }
        if let Some(low) = root.attr_value(dw::DW_AT_low_pc)
            && let Ok(Some(low)) = self.dwarf.attr_address(&unit, low)
        {
            unit.low_pc = low;
        }
        let language = language(root.attr_value(dw::DW_AT_language));
        Some(Parsed { index, unit, language })
    }
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
