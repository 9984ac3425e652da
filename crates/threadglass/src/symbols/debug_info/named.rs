//! Structures by their names.

use super::unit::Parsed;
use super::{DebugInfo, Query, TypeAt};
use gimli::{Attribute, constants as dw};

/// How many entries are read before looking at the clock.
const STEP: usize = 1 << 12;

impl DebugInfo {
    /// The structures with these `names`, in their order, of the unit called `unit`.
    pub(in crate::symbols) fn structures(&mut self, unit: &str, names: &[&str]) -> Vec<Option<TypeAt>> {
        let mut found = vec![None; names.len()];
        let mut query = self.query();
        for index in 0..query.source.units.len() {
            let Some(parsed) = query.unit(index) else { continue };
            let Ok(root) = parsed.unit.entry(parsed.unit.header.root_offset()) else { continue };
            if query.attribute_name(&parsed, &root).as_deref() == Some(unit) {
                // A unit that is broken has what comes before the place where it breaks.
                let _ = query.add_structures(&parsed, names, &mut found);
            }
            if found.iter().all(Option::is_some) || query.is_exhausted() {
                break;
            }
        }
        found
    }
}

impl<'a> Query<'a> {
    fn add_structures(&self, parsed: &Parsed<'a>, names: &[&str], found: &mut [Option<TypeAt>]) -> gimli::Result<()> {
        let mut entries = parsed.unit.entries_raw(None)?;
        let mut attributes = Vec::new();
        let mut count = 0;
        while !entries.is_empty() && found.iter().any(Option::is_none) {
            count += 1;
            if count % STEP == 0 && self.is_exhausted() {
                break;
            }
            let (offset, depth) = (entries.next_offset().0, entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            // Types of a package lie right below it.
            if depth != 1 || abbreviation.tag() != dw::DW_TAG_structure_type {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            let name = attributes.iter().find(|attribute| attribute.name() == dw::DW_AT_name).map(Attribute::value);
            let name = name.and_then(|name| self.string(parsed, name));
            if let Some(place) = names.iter().position(|wanted| name.as_deref() == Some(wanted)) {
                found[place] = parsed.start.checked_add(offset);
            }
        }
        Ok(())
    }
}
