//! Data symbols: names for variables of an object that has no debug information.

use super::object_file::{ObjectFile, RawSymbol, Section};
use super::{FileSymbols, Symbol, plainness};
use crate::RemoteAddr;
use crate::limits::{Limits, Share};
use std::fs::File;

/// How many symbols that begin before an address are tried: one may lie in another, but not many.
const MAX_TRIES: usize = 64;

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

/// The variables of an object's symbol tables, by link-time address.
#[derive(Debug, Default)]
pub struct DataSymbols {
    strings: Vec<u8>,
    /// By address.
    entries: Vec<VariableEntry>,
    share: Option<Share>,
}

impl DataSymbols {
    /// Reads the tables of `file`, the full one and the dynamic one, on the budget `limits`.
    pub fn read(file: &File, limits: &Limits) -> Self {
        let mut found = Self { share: limits.share(0), ..Self::default() };
        let symbols = FileSymbols::new(file, limits);
        let Some(object) = &symbols.object else { return found };
        let writable: Vec<bool> = object.sections.iter().map(|section| is_writable(object, section)).collect();
        symbols.visit_named(RawSymbol::is_data, |symbol, name| {
            let writable = writable.get(usize::from(symbol.section)).copied().unwrap_or(false);
            let has_room = found.push(name, symbol.value, symbol.size, writable);
            if !has_room {
                object.leave_out("variables", "there are too many of them");
            }
            has_room
        });
        found.sort();
        found
    }

    /// Makes a table of `(name, address, size)`; all of them count as writable.
    pub fn from_symbols<'a>(symbols: impl Iterator<Item = (&'a [u8], u64, u64)>, limits: &Limits) -> Self {
        let mut table = Self { share: limits.share(0), ..Self::default() };
        for (name, start, size) in symbols {
            if !table.push(name, start, size, true) {
                limits.leave_out("variables of an object without a file", "there are too many of them");
                break;
            }
        }
        table.sort();
        table
    }

    /// Adds one; `false` when there is no room for it.
    fn push(&mut self, name: &[u8], start: u64, size: u64, writable: bool) -> bool {
        // The full table has the version behind the name.
        let name = name.split(|byte| *byte == b'@').next().unwrap_or_default();
        if name.is_empty() || start == 0 {
            return true;
        }
        let bytes = name.len() + 1 + size_of::<VariableEntry>();
        let Ok(at) = u32::try_from(self.strings.len()) else { return false };
        if !self.share.as_mut().is_some_and(|share| share.grow(bytes as u64)) {
            return false;
        }
        self.strings.extend_from_slice(name);
        self.strings.push(0);
        self.entries.push(VariableEntry { start, size, name: at, writable });
        true
    }

    /// Orders by address; of several at one address the plainest name is last, where it is found first.
    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by(|a, b| {
            let order = (a.start, a.size).cmp(&(b.start, b.size));
            order.then_with(|| plainness(self.name(b)).cmp(&plainness(self.name(a))))
        });
        self.entries = entries;
    }

    fn name(&self, entry: &VariableEntry) -> &[u8] {
        let rest = self.strings.get(entry.name as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn symbol(&self, entry: &VariableEntry) -> Symbol {
        let name = String::from_utf8_lossy(self.name(entry)).into_owned();
        Symbol { name, addr: RemoteAddr(entry.start), size: entry.size }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The innermost variable that holds `addr`.
    pub fn at(&self, addr: u64) -> Option<Symbol> {
        let end = self.entries.partition_point(|entry| entry.start <= addr);
        let before = self.entries[..end].iter().rev().take(MAX_TRIES);
        before.filter(|entry| super::holds(entry.start, entry.size, addr)).map(|entry| self.symbol(entry)).next()
    }

    /// All variables of one of `sizes` that the program may write to; one for each address.
    pub fn of_size(&self, sizes: &[u64]) -> Vec<Symbol> {
        let mut found: Vec<Symbol> = Vec::new();
        for entry in self.entries.iter().rev().filter(|entry| entry.writable && sizes.contains(&entry.size)) {
            if found.last().is_none_or(|last| last.addr.0 != entry.start) {
                found.push(self.symbol(entry));
            }
        }
        found.reverse();
        found
    }
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
