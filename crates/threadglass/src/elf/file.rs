//! Symbols of an ELF file: the full table, where it was not stripped.

use super::{Symbol, holds};
use crate::RemoteAddr;
use object::elf::{SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::ElfFile64;
use object::read::elf::Sym;
use object::{Endianness, Object, ObjectSymbol, ReadCache};
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

    /// The function that holds the link-time address `addr`, if the tables have one. Only one name is
    /// read, however large the table.
    pub fn function_at(&self, addr: u64) -> Option<Symbol> {
        let elf = ElfFile64::<Endianness, _>::parse(&self.cache).ok()?;
        let endian = elf.endian();
        [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()].into_iter().find_map(|table| {
            let functions = table.symbols().iter().filter(|symbol| {
                matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) && symbol.st_shndx(endian) != SHN_UNDEF
            });
            let best = functions
                .filter(|symbol| holds(symbol.st_value(endian), symbol.st_size(endian), addr))
                .max_by_key(|symbol| symbol.st_value(endian))?;
            let name = best.name(endian, table.strings()).ok()?;
            Some(Symbol {
                name: String::from_utf8_lossy(name).into_owned(),
                addr: RemoteAddr(best.st_value(endian)),
                size: best.st_size(endian),
            })
        })
    }
}
