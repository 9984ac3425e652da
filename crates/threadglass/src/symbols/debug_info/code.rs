//! What the functions at an address have pointers to.

use super::index::UnitIndex;
use super::locks::LockMember;
use super::types::Shape;
use super::unit::Parsed;
use super::{DebugInfo, EntryAt, Language, Query};
use crate::symbols::library_by_name;
use gimli::constants as dw;
use std::collections::HashSet;
use std::sync::Arc;

/// Variables and parameters of the functions at one address.
const MAX_VARIABLES: usize = 1024;
/// Types that pointers of one address lead to.
const MAX_POINTEES: usize = 512;
/// How deep structures are searched for pointers.
const MAX_DEPTH: usize = 8;
/// How many pointers may follow one another.
const MAX_HOPS: usize = 2;
/// Types that are looked at for one address.
const MAX_VISITS: usize = 2048;

/// A type that a function at some address has a pointer to.
#[derive(Clone, Debug)]
pub(in crate::symbols) struct Pointee {
    /// The type's name.
    pub(in crate::symbols) name: String,
    /// The locks in it.
    pub(in crate::symbols) locks: Arc<Vec<LockMember>>,
    /// Where the type begins behind the pointer: other things may come before it.
    pub(in crate::symbols) offset: u64,
    /// Whether a variable of the program's own code points to a lock that is nothing but that.
    pub(in crate::symbols) is_bare: bool,
    /// Whether a variable points to it, not something that a variable points to.
    pub(in crate::symbols) is_near: bool,
}

/// What is known of the functions at an address.
#[derive(Clone, Debug, Default)]
pub(in crate::symbols) struct CodeFacts {
    /// What they have pointers to.
    pub(in crate::symbols) pointees: Vec<Pointee>,
    /// Whether one of them is the program's own, not of a library that only passes locks on.
    pub(in crate::symbols) is_own: bool,
}

/// Which unit has the code at an address.
#[derive(Default)]
pub(super) struct CodeMap {
    /// First address, end and unit, from the table that some compilers make.
    table: Option<Vec<(u64, u64, usize)>>,
    /// The same for units that are not in the table.
    rest: Option<Vec<(u64, u64, usize)>>,
}

fn lookup(ranges: &[(u64, u64, usize)], pc: u64) -> Option<usize> {
    let end = ranges.partition_point(|(from, _, _)| *from <= pc);
    ranges[..end].iter().rev().take(16).find(|(_, to, _)| pc < *to).map(|(_, _, unit)| *unit)
}

impl DebugInfo {
    /// What the functions at the link-time address `pc` have, those inlined there included. `None` where
    /// debug information knows of no function.
    pub(in crate::symbols) fn code_at(&mut self, pc: u64) -> Option<Arc<CodeFacts>> {
        if let Some(known) = self.decoded.code_facts.get(&pc) {
            return known.clone();
        }
        let mut query = self.query();
        let found = query.find_code(pc).map(Arc::new);
        let pointees = found.iter().flat_map(|found| &found.pointees);
        let bytes = pointees.map(|pointee| size_of_val(pointee) + pointee.name.len()).sum::<usize>();
        query.grow(bytes + size_of::<CodeFacts>());
        query.decoded.code_facts.insert(pc, found.clone());
        found
    }

    /// The names that `lock`, a part of some structure, has as a member of the structures around it: the
    /// innermost first. A member of a base class is the base's. A lock of Rust that has a value in it is known
    /// by the value's type, for want of anything better.
    pub(in crate::symbols) fn member_names(&mut self, lock: &LockMember) -> Vec<String> {
        const WITH_VALUE: [&str; 3] = ["Mutex<", "RwLock<", "ReentrantLock<"];
        let mut query = self.query();
        let mut names: Vec<String> = Vec::new();
        let mut last = String::new();
        for (at, start) in &lock.around {
            let (locks, inner) = (query.locks_in(*at), lock.offset.checked_sub(*start));
            let Some(inner) = locks.iter().find(|other| Some(other.offset) == inner) else { continue };
            let Some(found) = query.type_at(*at) else { continue };
            if inner.path.is_empty() {
                let name = found.name.as_ref().filter(|_| found.language == Language::Rust && names.is_empty());
                names.extend(name.filter(|name| WITH_VALUE.iter().any(|prefix| name.starts_with(prefix))).cloned());
            } else if inner.path != last {
                last.clone_from(&inner.path);
                names.extend(query.type_name(&found, None).map(|name| join(&name, &inner.path)));
            }
        }
        names
    }
}

/// The member at `path` of the type `name`.
pub(in crate::symbols) fn join(name: &str, path: &str) -> String {
    match path.strip_prefix('.') {
        Some(member) => format!("{name}::{member}"),
        None => format!("{name}{path}"),
    }
}

impl<'a> Query<'a> {
    pub(super) fn unit_at(&mut self, pc: u64) -> Option<usize> {
        if self.decoded.code.table.is_none() {
            self.decoded.code.table = Some(self.read_table());
        }
        if let Some(unit) = lookup(self.decoded.code.table.as_deref().unwrap_or_default(), pc) {
            return Some(unit);
        }
        if self.decoded.code.rest.is_none() {
            self.decoded.code.rest = Some(self.read_units());
        }
        lookup(self.decoded.code.rest.as_deref().unwrap_or_default(), pc)
    }

    fn read_table(&mut self) -> Vec<(u64, u64, usize)> {
        let mut ranges = Vec::new();
        let aranges = self.dwarf.debug_aranges;
        let mut headers = aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            if self.is_exhausted() {
                break;
            }
            let Some(unit) = self.unit_of(header.debug_info_offset().0) else { continue };
            let mut entries = header.entries();
            while let Ok(Some(entry)) = entries.next() {
                if let Some(end) = entry.address().checked_add(entry.length()).filter(|_| entry.address() != 0) {
                    if !self.grow(size_of::<(u64, u64, usize)>()) {
                        break;
                    }
                    ranges.push((entry.address(), end, unit));
                }
            }
        }
        ranges.sort_unstable();
        ranges
    }

    fn read_units(&mut self) -> Vec<(u64, u64, usize)> {
        let covered: HashSet<usize> = self.decoded.code.table.iter().flatten().map(|(_, _, unit)| *unit).collect();
        let mut ranges = Vec::new();
        for unit in (0..self.source.units.len()).filter(|unit| !covered.contains(unit)) {
            if self.is_exhausted() {
                break;
            }
            let Some(parsed) = self.unit(unit) else { continue };
            let Ok(root) = parsed.unit.entry(parsed.unit.header.root_offset()) else { continue };
            let own = self.code_ranges(&parsed, root.attrs());
            if self.grow(own.len() * size_of::<(u64, u64, usize)>()) {
                ranges.extend(own.into_iter().map(|(from, to)| (from, to, unit)));
            }
        }
        ranges.sort_unstable();
        ranges
    }

    fn find_code(&mut self, pc: u64) -> Option<CodeFacts> {
        let unit = self.unit_at(pc)?;
        let index = self.index(unit)?;
        let (_, function) = function_at(&index, pc)?;
        let parsed = self.unit(unit)?;
        let (variables, any_own) = self.variables_in(&parsed, function, pc)?;
        let mut found = Pointees { is_near: true, ..Pointees::default() };
        for (variable, is_own) in variables {
            if let Some(of) = self.type_of(variable) {
                // Only what a variable is itself, not what lies in it.
                if is_own
                    && let Some((value, _)) = self.strip(of)
                    && let Shape::Pointer(target) = value.shape
                {
                    self.add_bare(target, &mut found);
                }
                self.follow(of, &mut found, MAX_DEPTH);
            }
        }
        for _ in 1..MAX_HOPS {
            found.is_near = false;
            for target in std::mem::take(&mut found.next) {
                self.follow(target, &mut found, MAX_DEPTH);
            }
        }
        Some(CodeFacts { pointees: found.list, is_own: any_own })
    }

    /// The variables and parameters of the function at `offset` that are in force at `pc`; and of each,
    /// whether its function is the program's own. Then whether any of the functions is.
    fn variables_in(&mut self, parsed: &Parsed<'a>, offset: usize, pc: u64) -> Option<(Vec<(EntryAt, bool)>, bool)> {
        let mut variables = Vec::new();
        // The depths of the functions around an entry, and whether each is the program's own.
        let mut functions: Vec<(isize, bool)> = Vec::new();
        let mut any_own = false;
        let walked = self.walk(parsed, offset, |this, depth, entry| {
            if variables.len() >= MAX_VARIABLES || this.is_exhausted() {
                return None;
            }
            functions.retain(|(around, _)| *around < depth);
            let at = parsed.start.checked_add(entry.offset().0)?;
            match entry.tag() {
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                    variables.push((at, functions.last().is_some_and(|(_, is_own)| *is_own)));
                    return Some(true);
                }
                dw::DW_TAG_subprogram if depth == 0 => {}
                _ if this.is_inner_code(parsed, entry, pc) => {}
                _ => return Some(false),
            }
            if entry.tag() != dw::DW_TAG_lexical_block {
                let is_own = this.is_own(at);
                any_own |= is_own;
                functions.push((depth, is_own));
            }
            Some(true)
        });
        walked.ok()?;
        Some((variables, any_own))
    }

    /// Whether the function `at` is not one of a library that only passes locks on.
    fn is_own(&mut self, at: EntryAt) -> bool {
        const PASSING: [&str; 2] = ["pthread_", "<"];
        let is_own =
            |name: &str| library_by_name(name).is_none() && !PASSING.iter().any(|start| name.starts_with(start));
        self.qualified_name(at).is_some_and(|name| is_own(&name))
    }

    /// Adds what pointers in a value of the type `of` lead to.
    fn follow(&mut self, of: EntryAt, found: &mut Pointees, depth: usize) {
        let is_done = found.list.len() >= MAX_POINTEES || found.seen.len() >= MAX_VISITS;
        if depth == 0 || is_done || !found.seen.insert((of, found.is_near)) {
            return;
        }
        let Some((value, _)) = self.strip(of) else { return };
        match &value.shape {
            Shape::Pointer(target) => {
                self.add(*target, found);
                found.next.push(*target);
            }
            Shape::Struct(members) => members.iter().for_each(|member| self.follow(member.of, found, depth - 1)),
            _ => {}
        }
    }

    /// Notes a pointer to a lock that has nothing around it.
    fn add_bare(&mut self, target: EntryAt, found: &mut Pointees) {
        let locks = self.locks_in(target);
        let is_bare = locks.iter().any(|lock| lock.path.is_empty() && lock.offset == 0);
        if is_bare {
            let name = String::new();
            found.list.push(Pointee { name, locks, offset: 0, is_bare, is_near: true });
        }
    }

    /// Adds the type `target`, which something points to.
    fn add(&mut self, target: EntryAt, found: &mut Pointees) {
        const COUNTED: [&str; 3] = ["ArcInner<", "RcInner<", "RcBox<"];
        if self.locks_in(target).is_empty() {
            return;
        }
        let Some((value, _)) = self.strip(target) else { return };
        // Rust keeps counts before what an `Arc` or `Rc` owns.
        let (mut target, mut offset) = (target, 0);
        if let Shape::Struct(members) = &value.shape
            && value.name.as_deref().is_some_and(|name| COUNTED.iter().any(|prefix| name.starts_with(prefix)))
            && let Some(member) = members.iter().find(|member| matches!(member.name.as_deref(), Some("data" | "value")))
        {
            (target, offset) = (member.of, member.offset);
        }
        let locks = self.locks_in(target);
        let Some((value, alias)) = self.strip(target) else { return };
        if let Some(name) = self.type_name(&value, alias) {
            found.list.push(Pointee { name, locks, offset, is_bare: false, is_near: found.is_near });
        }
    }
}

/// What was found so far.
#[derive(Default)]
struct Pointees {
    list: Vec<Pointee>,
    /// What is pointed to, to be looked at in the next round.
    next: Vec<EntryAt>,
    seen: HashSet<(EntryAt, bool)>,
    is_near: bool,
}

/// The smallest piece of code that holds `pc`: where it begins, and its function.
pub(super) fn function_at(index: &UnitIndex, pc: u64) -> Option<(u64, usize)> {
    let end = index.functions.partition_point(|(from, _, _)| *from <= pc);
    let holding = index.functions[..end].iter().rev().take(64).filter(|(_, to, _)| pc < *to);
    holding.min_by_key(|(from, to, _)| to - from).map(|(from, _, offset)| (*from, *offset))
}
