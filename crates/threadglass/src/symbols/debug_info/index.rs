//! One pass over a unit: where its variables, functions and scopes are.

use super::unit::Parsed;
use super::{Query, Slice};
use crate::limits::Share;
use gimli::{Attribute, Operation, constants as dw};
use std::sync::Arc;

/// Scopes do not nest deeper in any program.
const MAX_DEPTH: usize = 256;
/// A function in more pieces than this is not followed.
const MAX_PIECES: usize = 1024;
/// No unit has more pieces of code, even if it is all of a large program.
const MAX_FUNCTIONS: usize = 2 << 20;
/// How many entries are read before looking at the clock.
const STEP: u32 = 1 << 12;

/// What one unit has. Offsets are within the unit.
pub(super) struct UnitIndex {
    /// Address and entry of each variable at a fixed address.
    pub(super) variables: Vec<(u64, usize)>,
    /// First address, end and entry of each piece of code.
    pub(super) functions: Vec<(u64, u64, usize)>,
    /// Namespaces, types and functions that have something in them, in the order they begin.
    scopes: Vec<ScopeSpan>,
    /// What all of them take.
    share: Share,
    bytes: usize,
}

/// Numbers are small: sections are bounded, and there may be very many scopes.
struct ScopeSpan {
    start: u32,
    end: u32,
    /// The one around it, or `NO_PARENT`.
    parent: u32,
}

const NO_PARENT: u32 = u32::MAX;

impl UnitIndex {
    /// The innermost scope around the entry at `offset`.
    pub(super) fn scope_of(&self, offset: usize) -> Option<usize> {
        let mut scope = self.scopes.partition_point(|scope| (scope.start as usize) < offset).checked_sub(1)?;
        while let Some(found) = self.scopes.get(scope) {
            if offset < found.end as usize {
                return Some(found.start as usize);
            }
            scope = found.parent as usize;
        }
        None
    }
}

impl<'a> Query<'a> {
    /// The index of a unit, made when it is first asked for. A unit that is broken has one up to the place
    /// where it breaks.
    pub(super) fn index(&mut self, unit: usize) -> Option<Arc<UnitIndex>> {
        if let Some(index) = self.decoded.indexes.get(&unit) {
            return Some(index.clone());
        }
        let parsed = self.unit(unit)?;
        let share = self.source.limits.share(0)?;
        let mut index = UnitIndex { variables: Vec::new(), functions: Vec::new(), scopes: Vec::new(), share, bytes: 0 };
        let _ = self.scan(&parsed, &mut index);
        index.functions.sort_unstable();
        index.variables.sort_unstable();
        let index = Arc::new(index);
        self.decoded.indexes.insert(unit, index.clone());
        Some(index)
    }

    fn scan(&mut self, parsed: &Parsed<'a>, index: &mut UnitIndex) -> gimli::Result<()> {
        let unit = &parsed.unit;
        let mut entries = unit.entries_raw(None)?;
        // Scopes that are not closed yet, with the depth at which they began.
        let mut open: Vec<(isize, usize)> = Vec::new();
        let mut attributes = Vec::new();
        let mut count = 0u32;
        while !entries.is_empty() {
            count += 1;
            if count >= STEP {
                count = 0;
                if self.is_exhausted() {
                    break;
                }
            }
            let (offset, depth) = (entries.next_offset().0, entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                if let Some((_, scope)) = open.pop_if(|(at, _)| *at >= entries.next_depth()) {
                    index.scopes[scope].end = u32::try_from(offset).unwrap_or(u32::MAX);
                }
                continue;
            };
            let specs = abbreviation.attributes();
            match abbreviation.tag() {
                dw::DW_TAG_variable if specs.iter().any(|spec| spec.name() == dw::DW_AT_location) => {
                    entries.read_attributes(specs, &mut attributes)?;
                    if let Some(addr) = self.fixed_address(parsed, &attributes) {
                        if !self.grow_index(index, size_of::<(u64, usize)>()) {
                            break;
                        }
                        index.variables.push((addr, offset));
                    }
                }
                dw::DW_TAG_subprogram => {
                    entries.read_attributes(specs, &mut attributes)?;
                    let ranges = self.code_ranges(parsed, &attributes);
                    count = count.saturating_add(ranges.len() as u32);
                    if index.functions.len() + ranges.len() > MAX_FUNCTIONS {
                        self.leave_out("parts of the debug information", "a unit has too many functions");
                        break;
                    }
                    if !self.grow_index(index, size_of::<(u64, u64, usize)>() * ranges.len()) {
                        break;
                    }
                    index.functions.extend(ranges.into_iter().map(|(from, to)| (from, to, offset)));
                }
                _ => entries.skip_attributes(specs)?,
            }
            let is_scope = matches!(
                abbreviation.tag(),
                dw::DW_TAG_namespace
                    | dw::DW_TAG_module
                    | dw::DW_TAG_structure_type
                    | dw::DW_TAG_class_type
                    | dw::DW_TAG_union_type
                    | dw::DW_TAG_subprogram
            );
            if is_scope && abbreviation.has_children() {
                if open.len() >= MAX_DEPTH {
                    break;
                }
                let parent = open.last().and_then(|(_, scope)| u32::try_from(*scope).ok()).unwrap_or(NO_PARENT);
                let Ok(start) = u32::try_from(offset) else { break };
                if !self.grow_index(index, size_of::<ScopeSpan>()) {
                    break;
                }
                open.push((depth, index.scopes.len()));
                index.scopes.push(ScopeSpan { start, end: u32::MAX, parent });
            }
        }
        Ok(())
    }

    /// Makes room in an index; `false` when there is none.
    fn grow_index(&mut self, index: &mut UnitIndex, bytes: usize) -> bool {
        let is_granted = self.fill(bytes, |_| index.share.grow(bytes as u64));
        index.bytes += if is_granted { bytes } else { 0 };
        is_granted
    }

    /// Forgets the index of a unit.
    pub(super) fn forget_index(&mut self, unit: usize) {
        if let Some(index) = self.decoded.indexes.remove(&unit) {
            self.decoded.bytes -= index.bytes;
        }
    }

    /// The address in a variable's location, when that is all there is in it.
    fn fixed_address(&self, parsed: &Parsed<'a>, attributes: &[Attribute<Slice<'a>>]) -> Option<u64> {
        let location = attributes.iter().find(|attribute| attribute.name() == dw::DW_AT_location)?;
        let expression = location.value().exprloc_value()?;
        let mut operations = expression.operations(parsed.unit.encoding());
        let addr = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.dwarf.address(&parsed.unit, index).ok()?,
            _ => return None,
        };
        let addr = match operations.next().ok()? {
            None => addr,
            Some(Operation::PlusConstant { value }) if operations.next().ok()?.is_none() => addr.checked_add(value)?,
            Some(_) => return None,
        };
        // What the linker has thrown away is at 0.
        (addr != 0).then_some(addr)
    }

    /// Where the code of a function, block or inlined function is.
    pub(super) fn code_ranges(&self, parsed: &Parsed<'a>, attributes: &[Attribute<Slice<'a>>]) -> Vec<(u64, u64)> {
        let value = |name| attributes.iter().find(|attribute| attribute.name() == name).map(Attribute::value);
        if let Some(ranges) = value(dw::DW_AT_ranges) {
            let Ok(Some(mut ranges)) = self.dwarf.attr_ranges(&parsed.unit, ranges) else { return Vec::new() };
            let ranges = std::iter::from_fn(|| ranges.next().ok().flatten());
            return ranges
                .take(MAX_PIECES)
                .filter(|range| range.begin != 0)
                .map(|range| (range.begin, range.end))
                .collect();
        }
        let low = value(dw::DW_AT_low_pc).and_then(|low| self.dwarf.attr_address(&parsed.unit, low).ok().flatten());
        let Some(low) = low.filter(|low| *low != 0) else { return Vec::new() };
        let high = value(dw::DW_AT_high_pc).and_then(|high| match self.dwarf.attr_address(&parsed.unit, high) {
            Ok(Some(high)) => Some(high),
            _ => low.checked_add(high.udata_value()?),
        });
        high.filter(|high| *high > low).map(|high| (low, high)).into_iter().collect()
    }
}
