//! What debug information says of variables, types and functions: enough to name a lock.
//!
//! Nothing is decoded before it is asked for, and everything that was decoded is kept. Debug information
//! is the target's: chains of references, depths and counts are bounded, and so is the time for all of it.

mod code;
mod frames;
mod index;
mod line_program;
mod locks;
mod named;
mod paths;
mod places;
mod sections;
mod types;
mod unit;
mod values;
mod variables;

pub(super) use code::{CodeFacts, join};
pub use frames::FunctionAt;
use locks::LockMember;
pub(crate) use places::{FrameVariable, VariablePlace};
pub(crate) use sections::debug_section;
pub(super) use sections::has_debug_info;
#[cfg(test)]
pub(crate) use values::Cases;
pub(crate) use values::{TypeAt, ValueMember, ValueType};

use super::LockTypes;
use crate::limits::{Limits, Share};
use crate::sys::clock::own_cpu;
use code::CodeMap;
use gimli::{AttributeValue, Dwarf, Section, UnitOffset, UnitType, constants as dw};
use index::UnitIndex;
use sections::{Sections, Slice};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::Type;
use unit::{Abbreviations, Parsed};

/// No file has more units.
const MAX_UNITS: usize = 1 << 20;
/// How much CPU time the debug information of one object may take, all in all: others are to have some, too.
const PATIENCE: Duration = Duration::from_secs(4);
/// How many references are followed from one entry to the one that has the name or type.
const MAX_REFERENCES: usize = 4;
/// How much of a name is read. Those of templates are long, but not endless.
const MAX_NAME: usize = 4096;
/// What may be decoded of one object: others are to have room, too.
const MAX_DECODED: usize = 128 << 20;
/// How deep names of scopes are followed outwards.
const MAX_SCOPES: usize = 64;

type Unit<'a> = gimli::Unit<Slice<'a>>;
type DebugEntry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// Where an entry is, in the whole section.
pub(super) type EntryAt = usize;

/// The debug information of one object. Addresses are those of link time.
pub(super) struct DebugInfo {
    source: Source,
    decoded: Decoded,
}

/// What there is to decode.
struct Source {
    sections: Arc<Sections>,
    limits: Limits,
    /// Where each unit lies in the section.
    units: Vec<Range<usize>>,
    /// Types that are referred to by a number.
    signatures: HashMap<u64, EntryAt>,
    lock_types: &'static dyn LockTypes,
}

/// What has been decoded.
#[derive(Default)]
struct Decoded {
    /// Time, and CPU time, that the questions so far have taken.
    spent: (Duration, Duration),
    /// What names and lists take, about: few bytes of a file can claim very many of them.
    share: Option<Share>,
    /// The same in bytes, with the indexes.
    bytes: usize,
    /// Whether there was no room for more of them.
    is_full: bool,
    abbreviations: Abbreviations,
    indexes: HashMap<usize, Arc<UnitIndex>>,
    types: HashMap<EntryAt, Option<Arc<Type>>>,
    values: HashMap<EntryAt, Option<Arc<ValueType>>>,
    locks: HashMap<EntryAt, Arc<Vec<LockMember>>>,
    /// Types whose locks are being looked for: one that contains itself is a lie.
    open: HashSet<EntryAt>,
    /// Address of each variable of the units scanned so far.
    variables: BTreeMap<u64, EntryAt>,
    /// How many units were scanned.
    scanned: usize,
    code: CodeMap,
    code_facts: HashMap<u64, Option<Arc<CodeFacts>>>,
}

/// The language of a unit, as far as names are written differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Rust,
    Other,
}

impl DebugInfo {
    /// Prepares to decode the debug information in `file`, on the budget `limits`.
    pub(super) fn open(file: &File, limits: &Limits, lock_types: &'static dyn LockTypes) -> Option<Self> {
        let sections = Sections::of(file, limits)?;
        let (mut units, mut signatures) = (Vec::new(), HashMap::new());
        let mut share = limits.share(0)?;
        let mut headers = sections.dwarf().units();
        while let Ok(Some(header)) = headers.next() {
            if units.len() >= MAX_UNITS || !share.grow(64) || limits.is_over() {
                sections.object.leave_out("debug information", "it has too many units");
                break;
            }
            let start = header.debug_info_offset()?.0;
            units.push(start..start.checked_add(header.length_including_self())?);
            if let UnitType::Type { type_signature, type_offset } = header.type_() {
                signatures.insert(type_signature.0, start.checked_add(type_offset.0)?);
            }
        }
        let decoded = Decoded { share: Some(share), ..Decoded::default() };
        Some(Self { source: Source { sections, limits: limits.clone(), units, signatures, lock_types }, decoded })
    }

    /// Begins to answer one question.
    fn query(&mut self) -> Query<'_> {
        Query {
            source: &self.source,
            dwarf: self.source.sections.dwarf(),
            decoded: &mut self.decoded,
            parsed: HashMap::new(),
            started: (Instant::now(), own_cpu()),
        }
    }
}

/// One question: borrows the sections, keeps the units that it has decoded.
struct Query<'a> {
    source: &'a Source,
    dwarf: Dwarf<Slice<'a>>,
    decoded: &'a mut Decoded,
    parsed: HashMap<usize, Arc<Parsed<'a>>>,
    started: (Instant, Duration),
}

impl Drop for Query<'_> {
    fn drop(&mut self) {
        self.decoded.spent = (self.time_spent(), self.cpu_spent());
    }
}

impl<'a> Query<'a> {
    /// Whether this object has cost enough.
    fn is_exhausted(&self) -> bool {
        if self.decoded.is_full {
            return true;
        }
        // A clock of CPU time costs a system call, and cannot have gone further than the other one.
        if self.time_spent() > PATIENCE && self.cpu_spent() > PATIENCE {
            self.leave_out("parts of the debug information", "reading them takes too long");
            return true;
        }
        self.source.limits.is_over()
    }

    /// The time that all questions have taken.
    fn time_spent(&self) -> Duration {
        self.decoded.spent.0 + self.started.0.elapsed()
    }

    fn cpu_spent(&self) -> Duration {
        self.decoded.spent.1 + own_cpu().saturating_sub(self.started.1)
    }

    /// Makes room for what was decoded; `false` when there is none, which is said.
    fn grow(&mut self, bytes: usize) -> bool {
        self.fill(bytes, |decoded| decoded.share.as_mut().is_some_and(|share| share.grow(bytes as u64)))
    }

    fn fill(&mut self, bytes: usize, grow: impl FnOnce(&mut Decoded) -> bool) -> bool {
        let is_granted = self.decoded.bytes + bytes <= MAX_DECODED && grow(self.decoded);
        if is_granted {
            self.decoded.bytes += bytes;
        } else if !self.decoded.is_full {
            self.decoded.is_full = true;
            self.leave_out("parts of the debug information", "they take too much memory");
        }
        is_granted
    }

    /// Says that something of the object was left out.
    fn leave_out(&self, what: &str, why: &str) {
        self.source.sections.object.leave_out(what, why);
    }

    /// The unit that holds the entry `at`.
    fn unit_of(&self, at: EntryAt) -> Option<usize> {
        let index = self.source.units.partition_point(|unit| unit.start <= at).checked_sub(1)?;
        self.source.units[index].contains(&at).then_some(index)
    }

    /// The entry `at`, and its unit.
    fn entry(&mut self, at: EntryAt) -> Option<(Arc<Parsed<'a>>, DebugEntry<'a>)> {
        // Every way through the entries comes by here.
        if self.is_exhausted() {
            return None;
        }
        let parsed = self.unit(self.unit_of(at)?)?;
        let entry = parsed.unit.entry(UnitOffset(at.checked_sub(parsed.start)?)).ok()?;
        Some((parsed, entry))
    }

    /// The entry that the attribute `name` of `entry` refers to.
    fn reference(&self, parsed: &Parsed<'a>, entry: &DebugEntry<'a>, name: gimli::DwAt) -> Option<EntryAt> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => parsed.start.checked_add(offset.0),
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            AttributeValue::DebugTypesRef(signature) => self.source.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    /// The entry that says more about `entry`: the declaration of what is defined here, or the function that
    /// was put in here.
    fn origin(&self, parsed: &Parsed<'a>, entry: &DebugEntry<'a>) -> Option<EntryAt> {
        self.reference(parsed, entry, dw::DW_AT_abstract_origin)
            .or_else(|| self.reference(parsed, entry, dw::DW_AT_specification))
    }

    /// The type of the variable, parameter or member `at`, which may be said elsewhere.
    fn type_of(&mut self, at: EntryAt) -> Option<EntryAt> {
        self.first_along(at, |this, parsed, entry| this.reference(parsed, entry, dw::DW_AT_type))
    }

    /// The first answer of `ask`, for the entry `at` and those that say more about it.
    fn first_along<T>(
        &mut self,
        mut at: EntryAt,
        ask: impl Fn(&Self, &Parsed<'a>, &DebugEntry<'a>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..MAX_REFERENCES {
            let (parsed, entry) = self.entry(at)?;
            if let Some(found) = ask(self, &parsed, &entry) {
                return Some(found);
            }
            at = self.origin(&parsed, &entry)?;
        }
        None
    }

    fn attribute_name(&self, parsed: &Parsed<'a>, entry: &DebugEntry<'a>) -> Option<String> {
        self.string(parsed, entry.attr_value(dw::DW_AT_name)?)
    }

    /// The text that an attribute is, or refers to; no more of it than a name has.
    fn string(&self, parsed: &Parsed<'a>, value: AttributeValue<Slice<'_>>) -> Option<String> {
        let text = match value {
            AttributeValue::String(text) => &text.slice()[..text.len().min(MAX_NAME)],
            AttributeValue::DebugStrRef(offset) => up_to_nul(self.dwarf.debug_str.reader().slice(), offset.0)?,
            AttributeValue::DebugLineStrRef(offset) => up_to_nul(self.dwarf.debug_line_str.reader().slice(), offset.0)?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let unit = &parsed.unit;
                let offsets = &self.dwarf.debug_str_offsets;
                let offset = offsets.get_str_offset(unit.encoding().format, unit.str_offsets_base, index).ok()?;
                up_to_nul(self.dwarf.debug_str.reader().slice(), offset.0)?
            }
            _ => return None,
        };
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The name of `at` with the names of the scopes it is declared in: `ns::Session::lock`.
    fn qualified_name(&mut self, at: EntryAt) -> Option<String> {
        let mut parts = Vec::new();
        let mut scope = Some(at);
        for _ in 0..MAX_SCOPES {
            let Some(at) = scope else { break };
            let (name, around) = self.scoped_name(at)?;
            match name {
                Some(name) => parts.push(name),
                None if parts.is_empty() => return None,
                // A structure without a name, around one with a name.
                None => {}
            }
            scope = around;
        }
        parts.reverse();
        Some(parts.join("::"))
    }

    /// The name of `at` alone, and the scope it was declared in, which may not be where it is defined.
    fn scoped_name(&mut self, at: EntryAt) -> Option<(Option<String>, Option<EntryAt>)> {
        let (mut at, mut name) = (at, None);
        for _ in 0..MAX_REFERENCES {
            let (parsed, entry) = self.entry(at)?;
            name = name.or_else(|| self.attribute_name(&parsed, &entry));
            if let Some(origin) = self.origin(&parsed, &entry) {
                at = origin;
                continue;
            }
            if name.is_none() && entry.tag() == dw::DW_TAG_namespace {
                name = Some("(anonymous namespace)".to_owned());
            }
            let scope = self.index(parsed.index)?.scope_of(at.checked_sub(parsed.start)?);
            return Some((name, scope.and_then(|scope| parsed.start.checked_add(scope))));
        }
        None
    }
}

/// The text at `offset`, cut where no name is longer.
fn up_to_nul(section: &[u8], offset: usize) -> Option<&[u8]> {
    let text = section.get(offset..)?;
    let text = &text[..text.len().min(MAX_NAME)];
    Some(&text[..memchr::memchr(0, text).unwrap_or(text.len())])
}
