//! Symbols of an ELF file: the full table, where it was not stripped.

use super::Symbol;
use crate::RemoteAddr;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind};
use std::collections::{HashMap, HashSet};
use std::fs::File;

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

    /// All function symbols, moved by `bias`. Nothing when the file is not an ELF object we can read.
    pub fn functions(&self, bias: u64) -> Vec<Symbol> {
        let Ok(elf) = ElfFile64::<Endianness, _>::parse(&self.cache) else { return Vec::new() };
        elf.symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                Some(Symbol {
                    name: String::from_utf8_lossy(symbol.name_bytes().ok()?).into_owned(),
                    addr: RemoteAddr(symbol.address().wrapping_add(bias)),
                    size: symbol.size(),
                })
            })
            .collect()
    }
}
