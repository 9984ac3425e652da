//! Symbols of an ELF file: the full table, where it was not stripped.

use super::{Symbol, holds, plainness};
use crate::RemoteAddr;
use object::elf::{SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::ElfFile64;
use object::read::elf::Sym;
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// Functions do not lie in one another by the thousand; a table that claims so is not followed.
const MAX_MATCHES: usize = 10 << 20;

/// Functions of one name that are listed.
const MAX_NAMESAKES: usize = 64;

/// A file's symbol tables, not yet relocated. The file is read in pieces, never memory-mapped: a
/// file that shrinks under a mapping would kill us by SIGBUS.
pub struct FileSymbols {
    cache: ReadCache<File>,
}

/// The file's build id.
pub fn build_id_of_file(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file.try_clone().ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    elf.build_id().ok().flatten().map(<[u8]>::to_vec)
}

impl std::fmt::Debug for FileSymbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSymbols").finish_non_exhaustive()
    }
}

impl FileSymbols {
    /// Prepares to read `file`.
    pub fn new(file: File) -> Self {
        Self { cache: ReadCache::new(file) }
    }

    /// Addresses of those of `names` that the file defines, moved by `bias`. One pass over the tables.
    pub fn addresses_of(&self, names: &[&str], bias: u64) -> HashMap<String, RemoteAddr> {
        let Ok(elf) = ElfFile64::<Endianness, _>::parse(&self.cache) else { return HashMap::new() };
        let wanted: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        elf.symbols()
            .chain(elf.dynamic_symbols())
            .filter(ObjectSymbol::is_definition)
            .filter_map(|symbol| {
                let name = symbol.name_bytes().ok().filter(|name| wanted.contains(name))?;
                let addr = RemoteAddr(symbol.address().wrapping_add(bias));
                Some((String::from_utf8_lossy(name).into_owned(), addr))
            })
            .collect()
    }

    /// The functions of this name, as the file has it or as its author wrote it, at link-time addresses. One pass
    /// over the tables; the same function in both is given once.
    pub fn functions_named(&self, name: &str) -> Vec<Symbol> {
        let Ok(elf) = ElfFile64::<Endianness, _>::parse(&self.cache) else { return Vec::new() };
        let mut found: Vec<Symbol> = Vec::new();
        let definitions = elf.symbols().chain(elf.dynamic_symbols()).filter(ObjectSymbol::is_definition);
        for symbol in definitions.filter(|symbol| symbol.kind() == object::SymbolKind::Text) {
            let Ok(raw) = symbol.name() else { continue };
            let (addr, size) = (RemoteAddr(symbol.address()), symbol.size());
            let is_it = raw == name || (raw.starts_with("_") && crate::symbols::demangle(raw) == name);
            if is_it && found.iter().all(|other| other.addr != addr) && found.len() < MAX_NAMESAKES {
                found.push(Symbol { name: raw.to_owned(), addr, size });
            }
        }
        found
    }

    /// The function that holds the link-time address `addr`, if the tables have one.
    pub fn function_at(&self, addr: u64) -> Option<Symbol> {
        self.functions_at(&[addr]).pop().flatten()
    }

    /// The function that holds each of the link-time addresses `addrs`. One pass over each table, and only
    /// the names that are wanted are read, however large the table.
    pub fn functions_at(&self, addrs: &[u64]) -> Vec<Option<Symbol>> {
        let mut found = vec![None; addrs.len()];
        let Ok(elf) = ElfFile64::<Endianness, _>::parse(&self.cache) else { return found };
        let endian = elf.endian();
        let mut wanted: Vec<(u64, usize)> = addrs.iter().enumerate().map(|(index, addr)| (*addr, index)).collect();
        wanted.sort_unstable();
        for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
            // Of several functions that hold an address, the one that begins last.
            let mut best: Vec<Option<&object::elf::Sym64<Endianness>>> = vec![None; addrs.len()];
            let plainness_of = |symbol: &object::elf::Sym64<Endianness>| {
                symbol.name(endian, table.strings()).map(|name| Reverse(plainness(name))).ok()
            };
            let functions = table.symbols().iter().filter(|symbol| {
                matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) && symbol.st_shndx(endian) != SHN_UNDEF
            });
            let mut matches = 0;
            for symbol in functions {
                if matches > MAX_MATCHES {
                    break;
                }
                let (start, size) = (symbol.st_value(endian), symbol.st_size(endian));
                let from = wanted.partition_point(|(addr, _)| *addr < start);
                for (_, index) in wanted[from..].iter().take_while(|(addr, _)| holds(start, size, *addr)) {
                    let better = best[*index].is_none_or(|old| {
                        let before = old.st_value(endian);
                        start > before || (start == before && plainness_of(symbol) > plainness_of(old))
                    });
                    matches += 1;
                    if better {
                        best[*index] = Some(symbol);
                    }
                }
            }
            for (slot, symbol) in found.iter_mut().zip(best).filter(|(slot, _)| slot.is_none()) {
                *slot = symbol.and_then(|symbol| {
                    let name = symbol.name(endian, table.strings()).ok()?;
                    Some(Symbol {
                        name: String::from_utf8_lossy(name).into_owned(),
                        addr: RemoteAddr(symbol.st_value(endian)),
                        size: symbol.st_size(endian),
                    })
                });
            }
        }
        found
    }
}
