//! Symbols of an ELF file: the full table, where it was not stripped.

use super::by_address::ByAddress;
use super::object_file::{HeldBytes, ObjectFile, RawSymbol, SHT_NOTE, SymbolNames, SymbolTable, symbols};
use super::{Symbol, holds, image::build_id_in_notes, plainness};
use crate::RemoteAddr;
use crate::limits::Limits;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Functions do not lie in one another by the thousand; a table that claims so is not followed.
const MAX_MATCHES: usize = 1 << 20;
/// Functions of one name that are listed.
const MAX_NAMESAKES: usize = 64;
/// Notes of one section, and sections of notes.
const MAX_NOTES: u64 = 64 << 10;
const MAX_NOTE_SECTIONS: usize = 64;
/// Symbols between two looks at the clock.
const STEP: usize = 1 << 12;
/// From this pass on the functions of the tables are kept in order.
const MANY_PASSES: u32 = 16;
/// Names of one function of which the plainest is taken.
const MAX_ALIASES: usize = 64;

/// A file's symbol tables, not yet relocated. Each is read when it is first asked for.
pub struct FileSymbols {
    pub(super) object: Option<ObjectFile>,
    full: OnceLock<Option<HeldBytes>>,
    dynamic: OnceLock<Option<HeldBytes>>,
    passes: AtomicU32,
    full_order: OnceLock<Option<ByAddress>>,
    dynamic_order: OnceLock<Option<ByAddress>>,
    pub(super) limits: Limits,
}

/// The file's build id.
pub fn build_id_of_file(file: &File) -> Option<Vec<u8>> {
    // Little is read, and nothing kept.
    let object = ObjectFile::open(file, &Limits::default())?;
    let notes = object.sections.iter().filter(|section| section.kind == SHT_NOTE && section.size <= MAX_NOTES);
    notes.take(MAX_NOTE_SECTIONS).find_map(|notes| build_id_in_notes(&object.read(notes.offset, notes.size)?))
}

impl FileSymbols {
    /// The tables of `file`, on the budget `limits`.
    pub fn new(file: &File, limits: &Limits) -> Self {
        Self {
            object: ObjectFile::open(file, limits),
            full: OnceLock::new(),
            dynamic: OnceLock::new(),
            passes: AtomicU32::new(0),
            full_order: OnceLock::new(),
            dynamic_order: OnceLock::new(),
            limits: limits.clone(),
        }
    }

    /// Whether the file has a full table with something in it.
    pub(crate) fn has_full_table(&self) -> bool {
        self.object.as_ref().is_some_and(ObjectFile::has_symbols)
    }

    /// One of the tables.
    pub(super) fn held(&self, table: SymbolTable) -> Option<&HeldBytes> {
        let held = match table {
            SymbolTable::Full => &self.full,
            SymbolTable::Dynamic => &self.dynamic,
        };
        held.get_or_init(|| self.object.as_ref()?.hold_symbols(table)).as_ref()
    }

    /// One of the tables, with its names as `names` gives them.
    fn named<'s>(
        &'s self,
        table: SymbolTable,
        names: impl Fn(&'s ObjectFile, SymbolTable) -> Option<SymbolNames<'s>>,
    ) -> Option<(&'s HeldBytes, SymbolNames<'s>)> {
        Some((self.held(table)?, names(self.object.as_ref()?, table)?))
    }

    /// Calls `visit` with every symbol and its name, as long as there is time and it gives `true`.
    pub(super) fn visit_named(
        &self,
        wanted: impl Fn(&RawSymbol) -> bool,
        mut visit: impl FnMut(&RawSymbol, &[u8]) -> bool,
    ) {
        for (held, names) in
            SymbolTable::BOTH.into_iter().filter_map(|table| self.named(table, ObjectFile::all_names_of))
        {
            for (number, symbol) in symbols(held).enumerate() {
                if number.is_multiple_of(STEP) && self.limits.is_over() {
                    return;
                }
                if wanted(&symbol)
                    && let Some(name) = names.get(symbol.name)
                    && !visit(&symbol, &name)
                {
                    return;
                }
            }
        }
    }

    /// Addresses of those of `names` that the file defines, moved by `bias`. One pass over the tables.
    pub fn addresses_of(&self, names: &[&str], bias: u64) -> HashMap<String, RemoteAddr> {
        let wanted: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let mut found = HashMap::new();
        self.visit_named(RawSymbol::is_definition, |symbol, name| {
            if wanted.contains(name) {
                let addr = RemoteAddr(symbol.value.wrapping_add(bias));
                found.insert(String::from_utf8_lossy(name).into_owned(), addr);
            }
            true
        });
        found
    }

    /// The functions of this name, as the file has it or as its author wrote it, at link-time addresses. One pass
    /// over the tables; the same function in both is given once.
    pub fn functions_named(&self, name: &str) -> Vec<Symbol> {
        let mut found: Vec<Symbol> = Vec::new();
        self.visit_named(RawSymbol::is_function, |symbol, raw| {
            let Ok(raw) = std::str::from_utf8(raw) else { return true };
            let (addr, size) = (RemoteAddr(symbol.value), symbol.size);
            let is_it = raw == name || (raw.starts_with("_") && crate::elf::demangle(raw) == name);
            if is_it && found.len() < MAX_NAMESAKES && found.iter().all(|other| other.addr != addr) {
                found.push(Symbol { name: raw.to_owned(), addr, size });
            }
            // A name may be short and yet take long to be written out.
            !self.limits.is_over()
        });
        found
    }

    /// The function that holds the link-time address `addr`, if the tables have one.
    pub fn function_at(&self, addr: u64) -> Option<Symbol> {
        self.functions_at(&[addr]).pop().flatten()
    }

    /// The function that holds each of the link-time addresses `addrs`. One pass over a table, and only the names that
    /// are wanted are read, however large the table. The dynamic one is for what the full one lacks.
    pub fn functions_at(&self, addrs: &[u64]) -> Vec<Option<Symbol>> {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let mut found = vec![None; addrs.len()];
        let mut wanted: Vec<(u64, usize)> = addrs.iter().enumerate().map(|(index, addr)| (*addr, index)).collect();
        wanted.sort_unstable();
        for table in SymbolTable::BOTH {
            if found.iter().all(Option::is_some) {
                break;
            }
            let Some((held, names)) = self.named(table, ObjectFile::names_of) else { continue };
            let of_order = |order: &ByAddress| {
                addrs.iter().map(|addr| Some(plainest(&names, order.around(*addr)?, *addr))).collect::<Option<Vec<_>>>()
            };
            let best = self.in_order(table).and_then(of_order).unwrap_or_else(|| self.pass(held, &names, &wanted));
            for (slot, symbol) in found.iter_mut().zip(best).filter(|(slot, _)| slot.is_none()) {
                *slot = symbol.and_then(|symbol| {
                    let name = names.get(symbol.name)?;
                    // The full table has the version behind the name.
                    let plain = name.split(|byte| *byte == b'@').next().filter(|plain| !plain.is_empty());
                    let name = String::from_utf8_lossy(plain.unwrap_or(&name)).into_owned();
                    Some(Symbol { name, addr: RemoteAddr(symbol.value), size: symbol.size })
                });
            }
        }
        found
    }

    /// The functions of a table in the order of their addresses, if they were asked for so often that the order pays.
    fn in_order(&self, table: SymbolTable) -> Option<&ByAddress> {
        if self.passes.load(Ordering::Relaxed) < MANY_PASSES {
            return None;
        }
        let order = match table {
            SymbolTable::Full => &self.full_order,
            SymbolTable::Dynamic => &self.dynamic_order,
        };
        order.get_or_init(|| ByAddress::of(self.held(table)?, &self.limits)).as_ref()
    }

    /// Whether the order is used by now.
    #[cfg(test)]
    pub(super) fn is_in_order(&self) -> bool {
        self.full_order.get().is_some_and(Option::is_some)
    }

    /// The function that holds each of the addresses `wanted`, which are in order, by the numbers that come with them.
    fn pass(&self, held: &HeldBytes, names: &SymbolNames<'_>, wanted: &[(u64, usize)]) -> Vec<Option<RawSymbol>> {
        // Of several functions that hold an address, the one that begins last.
        let mut best: Vec<Option<RawSymbol>> = vec![None; wanted.len()];
        let mut matches = 0;
        for (number, symbol) in symbols(held).enumerate() {
            if matches > MAX_MATCHES || (number.is_multiple_of(STEP) && self.limits.is_over()) {
                break;
            }
            if !symbol.is_function() {
                continue;
            }
            let from = wanted.partition_point(|(addr, _)| *addr < symbol.value);
            for (_, index) in wanted[from..].iter().take_while(|(addr, _)| holds(symbol.value, symbol.size, *addr)) {
                matches += 1;
                let is_better = match &best[*index] {
                    None => true,
                    Some(old) if old.value == symbol.value => {
                        // Reading names is what costs most.
                        matches += 64;
                        is_plainer(names, &symbol, old)
                    }
                    Some(old) => symbol.value > old.value,
                };
                if is_better {
                    best[*index] = Some(symbol);
                }
            }
        }
        best
    }
}

/// Whether a symbol has a plainer name than another one of the same function.
fn is_plainer(names: &SymbolNames<'_>, new: &RawSymbol, old: &RawSymbol) -> bool {
    let (new, old) = (names.get(new.name), names.get(old.name));
    new.is_some_and(|new| old.is_none_or(|old| plainness(&new) < plainness(&old)))
}

/// Of functions that begin at one address, the one with the plainest name of those that hold `addr`.
fn plainest(names: &SymbolNames<'_>, functions: &[RawSymbol], addr: u64) -> Option<RawSymbol> {
    let mut holding = functions.iter().filter(|function| holds(function.value, function.size, addr)).take(MAX_ALIASES);
    let first = holding.next().copied();
    holding.fold(first, |best, new| best.map(|old| if is_plainer(names, new, &old) { *new } else { old }))
}
