//! Data symbols: names for variables of an object that has no debug information.

use super::object_file::{ObjectFile, RawSymbol, Section, SymbolTable, symbols};
use super::{FileSymbols, Symbol, name_at, plainness};
use crate::RemoteAddr;
use crate::limits::{Limits, Share};
use std::borrow::Cow;
use std::fs::File;
use std::sync::{Arc, OnceLock};

/// How many symbols that begin before an address are tried: one may lie in another, but not many.
const MAX_TRIES: usize = 64;
/// Symbols between two looks at the clock.
const STEP: usize = 1 << 12;

/// The variables of an object's symbol tables, by link-time address. A table is read when it is first asked for, and of
/// its names only those that are wanted.
#[derive(Default)]
pub struct DataSymbols {
    full: OnceLock<Variables>,
    /// For what the full table lacks.
    dynamic: OnceLock<Variables>,
    file: Option<Arc<FileSymbols>>,
}

/// The variables of one table.
#[derive(Default)]
struct Variables {
    /// By address.
    entries: Vec<VariableEntry>,
    names: VariableNames,
    share: Option<Share>,
}

#[derive(Default)]
enum VariableNames {
    #[default]
    None,
    /// Those of a file.
    File(Arc<FileSymbols>, SymbolTable),
    /// Copies, each with a zero behind it.
    Copied(Vec<u8>),
}

/// One variable of an object.
#[derive(Clone, Copy, Debug)]
struct VariableEntry {
    start: u64,
    size: u64,
    /// Where its name begins in the strings.
    name: u32,
    /// Whether the program may write to it at any time.
    writable: bool,
}

impl DataSymbols {
    /// The tables of `file`, on the budget `limits`.
    pub fn read(file: &File, limits: &Limits) -> Self {
        Self::of(&Arc::new(FileSymbols::new(file, limits)))
    }

    /// The variables among the symbols of a file.
    pub(crate) fn of(file: &Arc<FileSymbols>) -> Self {
        Self { file: Some(file.clone()), ..Self::default() }
    }

    /// Makes a table of `(name, address, size)`; all of them count as writable.
    pub fn from_symbols<'a>(symbols: impl Iterator<Item = (&'a [u8], u64, u64)>, limits: &Limits) -> Self {
        let mut table = Variables { share: limits.share(0), ..Variables::default() };
        let mut strings = Vec::new();
        for (name, start, size) in symbols {
            let room = name.len() + 1;
            let Ok(at) = u32::try_from(strings.len()) else { break };
            strings.extend_from_slice(name);
            strings.push(0);
            if !table.push(VariableEntry { start, size, name: at, writable: true }, room) {
                limits.leave_out("variables of an object without a file", "there are too many of them");
                break;
            }
        }
        table.names = VariableNames::Copied(strings);
        table.sort();
        Self { full: OnceLock::from(table), ..Self::default() }
    }

    fn full(&self) -> &Variables {
        self.full.get_or_init(|| Variables::read(self.file.as_ref(), SymbolTable::Full))
    }

    fn dynamic(&self) -> &Variables {
        self.dynamic.get_or_init(|| Variables::read(self.file.as_ref(), SymbolTable::Dynamic))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.full().entries.is_empty() && self.dynamic().entries.is_empty()
    }

    /// The innermost variable that holds `addr`.
    pub fn at(&self, addr: u64) -> Option<Symbol> {
        self.full().at(addr).or_else(|| self.dynamic().at(addr))
    }

    /// All variables of one of `sizes` that the program may write to; one for each address.
    pub fn of_size(&self, sizes: &[u64]) -> Vec<Symbol> {
        let mut found: Vec<Symbol> = Vec::new();
        for table in [self.full(), self.dynamic()] {
            table.add_of_size(sizes, &mut found);
        }
        found.sort_by_key(|symbol| symbol.addr);
        found.dedup_by_key(|symbol| symbol.addr);
        found
    }
}

impl Variables {
    fn read(file: Option<&Arc<FileSymbols>>, table: SymbolTable) -> Self {
        let Some(file) = file else { return Self::default() };
        let (Some(held), Some(object)) = (file.held(table), &file.object) else { return Self::default() };
        let names = VariableNames::File(file.clone(), table);
        let mut found = Self { entries: Vec::new(), names, share: file.limits.share(0) };
        let writable: Vec<bool> = object.sections.iter().map(|section| is_writable(object, section)).collect();
        for (number, symbol) in symbols(held).enumerate() {
            if number.is_multiple_of(STEP) && file.limits.is_over() {
                break;
            }
            let RawSymbol { value: start, size, name, section, .. } = symbol;
            let writable = || writable.get(usize::from(section)).copied().unwrap_or(false);
            if symbol.is_data() && !found.push(VariableEntry { start, size, name, writable: writable() }, 0) {
                object.leave_out("variables", "there are too many of them");
                break;
            }
        }
        found.sort();
        found
    }

    /// Adds one, whose name takes `room` bytes of ours; `false` when there is no room for it.
    fn push(&mut self, entry: VariableEntry, room: usize) -> bool {
        if entry.start == 0 {
            return true;
        }
        let bytes = room + size_of::<VariableEntry>();
        let has_room = self.share.as_mut().is_some_and(|share| share.grow(bytes as u64));
        self.entries.extend(has_room.then_some(entry));
        has_room
    }

    fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.start, entry.size));
    }

    fn name(&self, entry: &VariableEntry) -> Option<Cow<'_, [u8]>> {
        let name = match &self.names {
            VariableNames::None => None,
            VariableNames::File(file, table) => file.object.as_ref()?.name(*table, entry.name).map(Cow::Owned),
            VariableNames::Copied(strings) => name_at(strings, entry.name).map(Cow::Borrowed),
        };
        name.filter(|name| !base_name(name).is_empty())
    }

    /// The innermost variable that holds `addr`; of several names, the plainest.
    fn at(&self, addr: u64) -> Option<Symbol> {
        let end = self.entries.partition_point(|entry| entry.start <= addr);
        let before = self.entries[..end].iter().rev().take(MAX_TRIES);
        let mut holding = before.filter(|entry| super::holds(entry.start, entry.size, addr)).peekable();
        let first = **holding.peek()?;
        self.plainest(holding.take_while(|entry| (entry.start, entry.size) == (first.start, first.size)))
    }

    /// The one of `entries`, which are all the same variable, with the plainest name.
    fn plainest<'e>(&self, entries: impl Iterator<Item = &'e VariableEntry>) -> Option<Symbol> {
        let named = entries.filter_map(|entry| Some((entry, self.name(entry)?)));
        let best = named.min_by(|(_, a), (_, b)| plainness(base_name(a)).cmp(&plainness(base_name(b))));
        best.map(|(entry, name)| Symbol {
            name: String::from_utf8_lossy(base_name(&name)).into_owned(),
            addr: RemoteAddr(entry.start),
            size: entry.size,
        })
    }

    fn add_of_size(&self, sizes: &[u64], found: &mut Vec<Symbol>) {
        let fitting: Vec<&VariableEntry> =
            self.entries.iter().filter(|entry| entry.writable && sizes.contains(&entry.size)).collect();
        for alike in fitting.chunk_by(|a, b| a.start == b.start) {
            let size = alike.last().map(|entry| entry.size);
            let largest = alike.iter().copied().filter(|entry| Some(entry.size) == size);
            found.extend(self.plainest(largest.take(MAX_TRIES)));
        }
    }
}

/// The full table has the version behind the name.
fn base_name(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'@').next().unwrap_or_default()
}

/// Whether the program may write to what is in `section` at any time.
fn is_writable(object: &ObjectFile, section: &Section) -> bool {
    const SHF_WRITE: u64 = 1;
    const SHF_ALLOC: u64 = 2;
    const SHF_TLS: u64 = 0x400;
    section.flags & (SHF_WRITE | SHF_ALLOC | SHF_TLS) == SHF_WRITE | SHF_ALLOC
        // Written by the dynamic linker only.
        && !object.is_named(section, b".data.rel.ro")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_symbol_with_the_plainest_name_answers() {
        let table = [
            (&b"__outer"[..], 100, 50),
            (b"outer", 100, 50),
            (b"inner@@V1", 110, 8),
            (b"unsized", 300, 0),
            (b"last", u64::MAX - 3, 8),
        ];
        let symbols = DataSymbols::from_symbols(table.into_iter(), &Limits::default());
        let name = |addr| symbols.at(addr).map(|symbol| (symbol.name, addr - symbol.addr.0));
        assert_eq!(name(100), Some(("outer".to_owned(), 0)));
        assert_eq!(name(112), Some(("inner".to_owned(), 2)));
        assert_eq!(name(118), Some(("outer".to_owned(), 18)));
        assert_eq!((name(150), name(99), name(301)), (None, None, None));
        assert_eq!(name(u64::MAX), Some(("last".to_owned(), 3)));
        let of_size: Vec<_> = symbols.of_size(&[50, 8]).into_iter().map(|symbol| symbol.name).collect();
        assert_eq!(of_size, ["outer", "inner", "last"]);
    }
}
