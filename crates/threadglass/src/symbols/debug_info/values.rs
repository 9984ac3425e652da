//! Types as values are read by them: members, the case that is in force, and what lies behind pointers.

use super::frames::SourceFiles;
use super::line_program::SourceRow;
use super::unit::Parsed;
use super::{DebugEntry, DebugInfo, EntryAt, Query};
use crate::model::{Family, SyncKind};
use gimli::{AttributeValue, constants as dw};
use std::sync::Arc;

/// Members and cases of one type.
const MAX_PARTS: usize = 4096;

/// A type, by its place in the debug information of an object.
pub(crate) type TypeAt = EntryAt;

/// One type.
#[derive(Debug, Default)]
pub(crate) struct ValueType {
    /// Its name, with the names of what it is declared in.
    pub(crate) name: String,
    /// Bytes of a value.
    pub(crate) size: u64,
    pub(crate) members: Vec<ValueMember>,
    /// Of a value that is one of several.
    pub(crate) cases: Option<Cases>,
    /// What a pointer leads to.
    pub(crate) points_to: Option<TypeAt>,
    /// What it was made with, by name.
    pub(crate) parameters: Vec<(String, TypeAt)>,
}

/// A member of a type.
#[derive(Debug)]
pub(crate) struct ValueMember {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) of: TypeAt,
}

/// What a value may be.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    /// Where the number that tells them apart is, and how many bytes it has; `None` where there is one case only.
    pub(crate) tag: Option<(u64, u64)>,
    pub(crate) list: Vec<ValueCase>,
}

/// One thing that a value may be.
#[derive(Debug)]
pub(crate) struct ValueCase {
    /// The number; `None` for what all other numbers mean.
    pub(crate) number: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) of: TypeAt,
    /// Where it comes from in the source.
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
}

impl ValueType {
    /// The member of this name.
    pub(crate) fn member(&self, name: &str) -> Option<&ValueMember> {
        self.members.iter().find(|member| member.name == name)
    }

    fn bytes(&self) -> usize {
        let names = self.members.iter().map(|member| member.name.len() + size_of::<ValueMember>());
        let cases = self.cases.iter().flat_map(|cases| &cases.list);
        let cases = cases.map(|case| size_of::<ValueCase>() + case.file.as_ref().map_or(0, |file| file.len()));
        size_of::<Self>() + self.name.len() + names.chain(cases).sum::<usize>()
    }
}

impl Cases {
    /// The case that the number `tag` stands for.
    pub(crate) fn case(&self, tag: u64) -> Option<&ValueCase> {
        let other = || self.list.iter().find(|case| case.number.is_none());
        self.list.iter().find(|case| case.number == Some(tag)).or_else(other)
    }
}

impl DebugInfo {
    /// The type `at`.
    pub(in crate::symbols) fn value_type(&mut self, at: TypeAt) -> Option<Arc<ValueType>> {
        if let Some(known) = self.decoded.values.get(&at) {
            return known.clone();
        }
        let mut query = self.query();
        let found = query.read_value_type(at).map(Arc::new);
        let bytes = found.as_ref().map_or(0, |found| found.bytes()) + 64;
        if query.grow(bytes) && !query.is_exhausted() {
            query.decoded.values.insert(at, found.clone());
        }
        found
    }

    /// The types that variables and parameters of the function that begins at the link-time address `pc` have, with
    /// those of what was put into it.
    pub(in crate::symbols) fn types_in_function(&mut self, pc: u64) -> Vec<TypeAt> {
        self.query().types_in_function(pc).unwrap_or_default()
    }

    /// The type whose table of methods is the variable at the link-time address `addr`.
    pub(in crate::symbols) fn type_of_methods(&mut self, addr: u64) -> Option<TypeAt> {
        let mut query = self.query();
        let variable = query.variable_beginning_at(addr)?;
        let methods = query.type_of(variable)?;
        let (parsed, entry) = query.entry(methods)?;
        query.reference(&parsed, &entry, dw::DW_AT_containing_type)
    }

    /// The locks in a value of the type `at`: where, and what each is.
    pub(in crate::symbols) fn locks_of_type(&mut self, at: TypeAt) -> Vec<(u64, SyncKind, Family)> {
        let locks = self.query().locks_in(at);
        locks.iter().map(|lock| (lock.offset, lock.kind, lock.family)).collect()
    }
}

impl<'a> Query<'a> {
    fn types_in_function(&mut self, pc: u64) -> Option<Vec<TypeAt>> {
        let unit = self.unit_at(pc)?;
        let index = self.index(unit)?;
        let parsed = self.unit(unit)?;
        let (start, function) = super::code::function_at(&index, pc)?;
        if start != pc {
            return None;
        }
        let mut variables = Vec::new();
        let walked = self.walk(&parsed, function, |this, _, entry| {
            if matches!(entry.tag(), dw::DW_TAG_variable | dw::DW_TAG_formal_parameter) && variables.len() < MAX_PARTS {
                variables.extend(parsed.start.checked_add(entry.offset().0));
            }
            (!this.is_exhausted()).then_some(true)
        });
        walked.ok()?;
        Some(variables.into_iter().filter_map(|variable| self.type_of(variable)).collect())
    }

    fn read_value_type(&mut self, at: TypeAt) -> Option<ValueType> {
        let (found, _) = self.strip(at)?;
        let at = found.at;
        let (parsed, entry) = self.entry(at)?;
        let mut value = ValueType { size: found.size.unwrap_or(0), ..ValueType::default() };
        if let super::types::Shape::Pointer(to) = found.shape {
            value.points_to = Some(to);
            value.name = found.name.clone().unwrap_or_default();
            return Some(value);
        }
        if !matches!(entry.tag(), dw::DW_TAG_structure_type | dw::DW_TAG_union_type | dw::DW_TAG_class_type) {
            value.name = found.name.clone().unwrap_or_default();
            return Some(value);
        }
        value.name = self.qualified_name(at).unwrap_or_default();
        let mut parts = Parts::default();
        let walked = self.walk(&parsed, at.checked_sub(parsed.start)?, |this, depth, entry| {
            if parts.members.len() + parts.cases.len() + parts.parameters.len() > MAX_PARTS || this.is_exhausted() {
                return None;
            }
            Some(this.add_part(&parsed, depth, entry, &mut parts))
        });
        walked.ok()?;
        value.members = parts.members;
        value.parameters = parts.parameters;
        if parts.has_cases {
            let mut files = SourceFiles::of(self, &parsed);
            let tag = parts.tag.and_then(|tag| self.tag_of(tag));
            let mut list = Vec::with_capacity(parts.cases.len());
            for case in parts.cases {
                let row = case.line.map(|line| SourceRow { file: case.file.unwrap_or(u64::MAX), line });
                let (file, line) = self.place(&parsed, row, &mut files);
                let file = file.map(Arc::from);
                list.push(ValueCase { number: case.number, offset: case.offset, of: case.of, file, line });
            }
            value.cases = Some(Cases { tag, list });
        }
        Some(value)
    }

    /// Adds an entry below a type to its parts; gives whether those below it are parts, too.
    fn add_part(&mut self, parsed: &Parsed<'a>, depth: isize, entry: &DebugEntry<'a>, parts: &mut Parts) -> bool {
        let number = |name| entry.attr(name).and_then(|value| value.udata_value());
        let offset = || number(dw::DW_AT_data_member_location).unwrap_or(0);
        let of = || self.reference(parsed, entry, dw::DW_AT_type);
        match (entry.tag(), depth) {
            (_, 0) => true,
            (dw::DW_TAG_variant_part, 1) => {
                parts.has_cases = true;
                parts.tag = self.reference(parsed, entry, dw::DW_AT_discr);
                true
            }
            (dw::DW_TAG_variant, 2) => {
                parts.number = entry.attr_value(dw::DW_AT_discr_value).and_then(number_of);
                true
            }
            (dw::DW_TAG_member, 3) => {
                if let Some(of) = of() {
                    let file = match entry.attr_value(dw::DW_AT_decl_file) {
                        Some(AttributeValue::FileIndex(file)) => Some(file),
                        _ => number(dw::DW_AT_decl_file),
                    };
                    let line = number(dw::DW_AT_decl_line);
                    parts.cases.push(CasePart { number: parts.number, offset: offset(), of, file, line });
                }
                false
            }
            (dw::DW_TAG_member, 1) => {
                if let Some(of) = of() {
                    let name = self.attribute_name(parsed, entry).unwrap_or_default();
                    parts.members.push(ValueMember { name, offset: offset(), of });
                }
                false
            }
            (dw::DW_TAG_template_type_parameter, 1) => {
                if let (Some(of), Some(name)) = (of(), self.attribute_name(parsed, entry)) {
                    parts.parameters.push((name, of));
                }
                false
            }
            _ => false,
        }
    }

    /// Where the number that the entry `at` describes is, and how many bytes it has.
    fn tag_of(&mut self, at: EntryAt) -> Option<(u64, u64)> {
        let (_, entry) = self.entry(at)?;
        let offset = entry.attr(dw::DW_AT_data_member_location).and_then(|value| value.udata_value()).unwrap_or(0);
        let of = self.type_of(at)?;
        let size = self.size_of(of)?;
        (1..=8).contains(&size).then_some((offset, size))
    }
}

/// A number as it lies in memory, without regard to its sign.
fn number_of<R: gimli::Reader>(value: AttributeValue<R>) -> Option<u64> {
    value.udata_value().or_else(|| value.sdata_value().map(|number| number as u64))
}

/// What was seen below a type so far.
#[derive(Default)]
struct Parts {
    members: Vec<ValueMember>,
    parameters: Vec<(String, TypeAt)>,
    has_cases: bool,
    tag: Option<EntryAt>,
    /// The number of the case that is being read.
    number: Option<u64>,
    cases: Vec<CasePart>,
}

struct CasePart {
    number: Option<u64>,
    offset: u64,
    of: TypeAt,
    file: Option<u64>,
    line: Option<u64>,
}
