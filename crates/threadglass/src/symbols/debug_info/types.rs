//! Types: structures, arrays, names of other types, pointers.

use super::unit::Parsed;
use super::{DebugEntry, EntryAt, Language, Query};
use gimli::{AttributeValue, constants as dw};
use std::sync::Arc;

/// No structure has more members.
const MAX_MEMBERS: usize = 4096;
/// How many names and qualifiers may stand before a type.
const MAX_ALIASES: usize = 32;
/// Dimensions of an array.
const MAX_DIMENSIONS: usize = 8;

/// One type.
#[derive(Debug)]
pub(super) struct Type {
    pub(super) at: EntryAt,
    /// Its own name, without scopes.
    pub(super) name: Option<String>,
    pub(super) language: Language,
    pub(super) size: Option<u64>,
    pub(super) shape: Shape,
}

/// What a type is made of.
#[derive(Debug)]
pub(super) enum Shape {
    /// Members, one behind the other.
    Struct(Vec<TypeMember>),
    /// Members in the same place.
    Union(Vec<TypeMember>),
    /// Elements of a type; the sizes of its dimensions.
    Array(EntryAt, Vec<u64>),
    /// Another type under this name, or with a qualifier.
    Alias(EntryAt),
    /// A pointer or reference.
    Pointer(EntryAt),
    /// Anything else.
    Plain,
}

/// A member or base class.
#[derive(Debug)]
pub(super) struct TypeMember {
    pub(super) name: Option<String>,
    pub(super) offset: u64,
    pub(super) of: EntryAt,
    pub(super) is_base: bool,
}

impl Type {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let members = match &self.shape {
            Shape::Struct(members) | Shape::Union(members) => members.as_slice(),
            _ => &[],
        };
        let names = members.iter().filter_map(|member| member.name.as_ref());
        size_of::<Self>() + size_of_val(members) + names.chain(&self.name).map(String::len).sum::<usize>()
    }
}

impl<'a> Query<'a> {
    /// The type `at`.
    pub(super) fn type_at(&mut self, at: EntryAt) -> Option<Arc<Type>> {
        if let Some(known) = self.decoded.types.get(&at) {
            return known.clone();
        }
        let found = self.read_type(at).map(Arc::new);
        // What was not decoded for want of time is asked for again in vain, but not remembered as absent.
        if let Some(found) = &found {
            self.grow(found.bytes());
        }
        if found.is_some() || !self.is_exhausted() {
            self.decoded.types.insert(at, found.clone());
        }
        found
    }

    /// The type behind names and qualifiers, and the last name on the way.
    pub(super) fn strip(&mut self, at: EntryAt) -> Option<(Arc<Type>, Option<EntryAt>)> {
        let (mut at, mut named) = (at, None);
        for _ in 0..MAX_ALIASES {
            let found = self.type_at(at)?;
            let Shape::Alias(next) = found.shape else { return Some((found, named)) };
            if found.name.is_some() {
                named = Some(at);
            }
            at = next;
        }
        None
    }

    /// How many bytes a value of the type takes.
    pub(super) fn size_of(&mut self, at: EntryAt) -> Option<u64> {
        let (mut at, mut count) = (at, 1u64);
        // Arrays of arrays under a name.
        for _ in 0..MAX_DIMENSIONS {
            let (found, _) = self.strip(at)?;
            if let Some(size) = found.size {
                return size.checked_mul(count);
            }
            let Shape::Array(element, counts) = &found.shape else { return None };
            count = counts.iter().try_fold(count, |all, count| all.checked_mul(*count))?;
            at = *element;
        }
        None
    }

    fn read_type(&mut self, at: EntryAt) -> Option<Type> {
        let (parsed, entry) = self.entry(at)?;
        let target = self.reference(&parsed, &entry, dw::DW_AT_type);
        let mut size = entry.attr(dw::DW_AT_byte_size).and_then(|size| size.udata_value());
        let shape = match entry.tag() {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                // The members of some types are kept in a unit of their own.
                if let Some(whole) = self.reference(&parsed, &entry, dw::DW_AT_signature).filter(|whole| *whole != at) {
                    let signed = self.entry(whole)?;
                    if signed.1.has_attr(dw::DW_AT_signature) {
                        return None;
                    }
                    return self.read_type(whole);
                }
                let members = self.members(&parsed, at)?;
                if entry.tag() == dw::DW_TAG_union_type { Shape::Union(members) } else { Shape::Struct(members) }
            }
            dw::DW_TAG_array_type => Shape::Array(target?, self.dimensions(&parsed, at)?),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                size = Some(8);
                target.map_or(Shape::Plain, Shape::Pointer)
            }
            dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type => target.map_or(Shape::Plain, Shape::Alias),
            _ => Shape::Plain,
        };
        // A qualifier that bears a name would hide the one behind it.
        let name = self.attribute_name(&parsed, &entry);
        Some(Type { at, name, language: parsed.language, size, shape })
    }

    /// Calls `visit` with each entry directly below the one `at`.
    fn children(
        &mut self,
        parsed: &Parsed<'a>,
        at: EntryAt,
        mut visit: impl FnMut(&Self, &DebugEntry<'a>),
    ) -> Option<()> {
        self.walk(parsed, at.checked_sub(parsed.start)?, |this, depth, entry| {
            if depth == 1 {
                visit(this, entry);
            }
            Some(depth == 0)
        })
        .map(drop)
        .ok()
    }

    fn members(&mut self, parsed: &Parsed<'a>, at: EntryAt) -> Option<Vec<TypeMember>> {
        let mut members = Vec::new();
        self.children(parsed, at, |this, entry| {
            let is_base = entry.tag() == dw::DW_TAG_inheritance;
            let is_member = entry.tag() == dw::DW_TAG_member
                && !entry.has_attr(dw::DW_AT_external)
                && !entry.has_attr(dw::DW_AT_declaration)
                && !entry.has_attr(dw::DW_AT_data_bit_offset)
                && !entry.has_attr(dw::DW_AT_bit_size);
            if !(is_base || is_member) || members.len() >= MAX_MEMBERS {
                return;
            }
            let offset = match entry.attr_value(dw::DW_AT_data_member_location) {
                None => Some(0),
                // A virtual base's place is computed while the program runs: it has no fixed one.
                Some(AttributeValue::Exprloc(_) | AttributeValue::Block(_)) => None,
                Some(value) => value.udata_value(),
            };
            if let (Some(offset), Some(of)) = (offset, this.reference(parsed, entry, dw::DW_AT_type)) {
                members.push(TypeMember { name: this.attribute_name(parsed, entry), offset, of, is_base });
            }
        })?;
        Some(members)
    }

    fn dimensions(&mut self, parsed: &Parsed<'a>, at: EntryAt) -> Option<Vec<u64>> {
        let mut counts = Vec::new();
        self.children(parsed, at, |_, entry| {
            if entry.tag() == dw::DW_TAG_subrange_type && counts.len() < MAX_DIMENSIONS {
                let count = entry.attr(dw::DW_AT_count).and_then(|count| count.udata_value());
                let bound = entry.attr(dw::DW_AT_upper_bound).and_then(|bound| bound.udata_value());
                counts.push(count.or_else(|| bound.and_then(|bound| bound.checked_add(1))).unwrap_or(0));
            }
        })?;
        (!counts.is_empty()).then_some(counts)
    }

    /// The name by which a program's author knows the type: `struct session`, `ns::Session`, `session_t`.
    pub(super) fn type_name(&mut self, found: &Type, alias: Option<EntryAt>) -> Option<String> {
        if found.name.is_none() {
            return self.qualified_name(alias?);
        }
        let name = self.qualified_name(found.at)?;
        Some(if found.language == Language::C { format!("struct {name}") } else { name })
    }
}
