//! An ELF object as it lies in the target's memory.
//!
//! Dynamic symbols are part of the loaded image, so they can be had without opening any file: that
//! works for deleted and replaced libraries, in containers, and cannot be tricked by what the
//! target put under the library's name. Every number here is the target's claim and is checked.

use super::dynamic::Dynamic;
use super::object_file::{MAX_NAME, RawSymbol, SYMBOL};
use super::program_header::{PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_LOAD, PT_NOTE, PT_TLS, ProgramHeader};
use super::{Symbol, holds, name_at, plainness, u16_at, u32_at, u64_at};
use crate::RemoteAddr;
use crate::arch::ELF_MACHINE;
use crate::limits::{Limits, Share};
use crate::memory::{Memory, PAGE, ReadError, read_each};
use ImageError::Corrupt;
use std::sync::OnceLock;

const MAX_PHDRS: u16 = 256;
const MAX_TABLE: u64 = 64 << 20;
const MAX_SYMBOLS: u64 = 2 << 20;
/// How often, in the mean, a byte of the string table may belong to a name: names may share their ends.
const MAX_SHARING: u64 = 8;
/// Symbols of other objects that one object uses. The largest programs use some thousands.
const MAX_IMPORTS: usize = 64 << 10;
/// Names of one function. libc has some with a dozen.
const MAX_NAMES_AT_ONE_PLACE: usize = 64;
/// How much of a name is read at first.
const USUAL_NAME: usize = 128;
const MAX_NOTES: u64 = 64 << 10;
const MAX_NOTE_SEGMENTS: usize = 16;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Not ELF, not 64-bit, or not x86-64.
    #[error("no x86-64 ELF object")]
    NotElf,
    /// A count or size that no real object has.
    #[error("the ELF object is corrupt: {0}")]
    Corrupt(&'static str),
    /// Its memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A loaded object: its load bias, and its dynamic symbols once asked for.
#[derive(Debug, Default)]
pub struct Image {
    base: RemoteAddr,
    bias: u64,
    headers: Vec<ProgramHeader>,
    /// Whether the dynamic symbols were asked for.
    is_asked: bool,
    symbols: Vec<[u8; SYMBOL]>,
    /// Where the names of the symbols are, and how long all of them are.
    strings: (RemoteAddr, u64),
    /// Relocations of the procedure linkage table: where, and which symbol.
    imports: Vec<u8>,
    /// All names, for lookups by name.
    names: OnceLock<ImageNames>,
    /// Functions by where they begin, for lookups by address.
    by_start: OnceLock<Vec<FunctionStart>>,
    share: Option<Share>,
}

/// The names of all symbols. Programs may have megabytes of them, so they are read only where one is searched for.
#[derive(Debug, Default)]
struct ImageNames {
    strings: Vec<u8>,
    /// (hash of the name, index), sorted.
    by_hash: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct FunctionStart {
    value: u64,
    /// Which symbol.
    index: u32,
    /// The highest end of this function and of those before it.
    end: u64,
}

impl Image {
    /// Reads the headers of the object whose first byte is mapped at `base`.
    pub fn load(memory: &dyn Memory, base: RemoteAddr) -> Result<Self, ImageError> {
        let header = memory.read_vec(base, 64)?;
        // Magic, 64-bit, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") || u16_at(&header, 18) != ELF_MACHINE {
            return Err(ImageError::NotElf);
        }
        let (phoff, phentsize, phnum) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
        if usize::from(phentsize) != ProgramHeader::SIZE || phnum > MAX_PHDRS {
            return Err(Corrupt("program header size or count"));
        }
        let table = base.checked_add(phoff).ok_or(Corrupt("program header offset"))?;
        let table = memory.read_vec(table, usize::from(phnum) * ProgramHeader::SIZE)?;
        let headers: Vec<_> = ProgramHeader::decode(&table).collect();
        let first = headers.iter().find(|header| header.kind == PT_LOAD && header.offset == 0);
        let first = first.ok_or(Corrupt("no segment holds the header"))?;
        Ok(Self { base, bias: base.0.wrapping_sub(first.vaddr), headers, ..Self::default() })
    }

    /// The object at `base` with its dynamic symbols, on the budget `limits`.
    pub fn with_symbols(memory: &dyn Memory, base: RemoteAddr, limits: &Limits) -> Result<Self, ImageError> {
        let mut image = Self::load(memory, base)?;
        image.read_symbols(memory, Some(limits)).map(|()| image)
    }

    /// The segments of a kind: where each is in memory, and its header.
    pub(super) fn of_kind(&self, kind: u32) -> impl Iterator<Item = (RemoteAddr, &ProgramHeader)> {
        let headers = self.headers.iter().filter(move |header| header.kind == kind);
        headers.map(|header| (RemoteAddr(header.vaddr.wrapping_add(self.bias)), header))
    }

    /// Segments of the program that have all of `flags`: where each is in memory, and how many bytes come from the file.
    pub(crate) fn loads_with(&self, flags: u32) -> impl Iterator<Item = (RemoteAddr, u64)> {
        let has = move |(_, header): &(RemoteAddr, &ProgramHeader)| header.flags & flags == flags;
        self.of_kind(PT_LOAD).filter(has).map(|(start, header)| (start, header.file_size))
    }

    /// Permissions of the segment that has bytes in the page at `addr`, as its header has them.
    pub(crate) fn flags_at(&self, addr: RemoteAddr) -> Option<u32> {
        let at = addr.0.wrapping_sub(self.bias);
        let mut loads = self.headers.iter().filter(|header| header.kind == PT_LOAD);
        let holds =
            |load: &&ProgramHeader| (load.vaddr & !0xfff) <= at && at < load.vaddr.saturating_add(load.memory_size);
        loads.find(holds).map(|load| load.flags)
    }

    /// Where its first byte is mapped.
    pub(super) fn base(&self) -> RemoteAddr {
        self.base
    }

    /// Difference between run-time and link-time addresses.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// What its thread-local data begin as, in each thread: where that is in memory, and how long.
    pub fn tls_image(&self) -> Option<(RemoteAddr, u64)> {
        // Only the part that is in the file: the rest is zeros.
        self.of_kind(PT_TLS).last().map(|(addr, header)| (addr, header.file_size))
    }

    /// Where the index of its unwind information lies, and how long it is.
    pub fn eh_frame_hdr(&self) -> Option<(RemoteAddr, u64)> {
        self.of_kind(PT_GNU_EH_FRAME).next().map(|(addr, header)| (addr, header.memory_size))
    }

    /// What is read-only once it was relocated: where it is in memory, and how long.
    pub(crate) fn relocated_read_only(&self) -> Option<(RemoteAddr, u64)> {
        self.of_kind(PT_GNU_RELRO).next().map(|(addr, header)| (addr, header.memory_size))
    }

    /// End of the segment that holds `addr`.
    pub fn segment_end(&self, addr: RemoteAddr) -> Option<RemoteAddr> {
        let mut segments = self.of_kind(PT_LOAD).map(|(from, header)| from..from.offset(header.memory_size));
        segments.find(|segment| segment.contains(&addr)).map(|segment| segment.end)
    }

    /// Whether a segment has bytes in the page of `addr`.
    pub fn has_page_of(&self, addr: RemoteAddr) -> bool {
        let page = PAGE as u64;
        let (from, to) = (addr.0 / page * page, (addr.0 / page).saturating_add(1).saturating_mul(page));
        let ends =
            |(start, header): (RemoteAddr, &ProgramHeader)| (start.0, start.0.saturating_add(header.memory_size));
        self.of_kind(PT_LOAD).map(ends).any(|(start, end)| start < to && from < end)
    }

    /// The build id, if the object carries one.
    pub fn build_id(&self, memory: &dyn Memory) -> Option<Vec<u8>> {
        let mut left = MAX_NOTES;
        self.of_kind(PT_NOTE).take(MAX_NOTE_SEGMENTS).find_map(|(addr, header)| {
            left = left.checked_sub(header.memory_size)?;
            build_id_in_notes(&memory.read_vec(addr, usize::try_from(header.memory_size).ok()?).ok()?)
        })
    }

    /// Reads the dynamic symbol table into memory of ours. Does nothing the second time.
    pub fn load_symbols(&mut self, memory: &dyn Memory) -> Result<(), ImageError> {
        self.read_symbols(memory, None)
    }

    fn read_symbols(&mut self, memory: &dyn Memory, limits: Option<&Limits>) -> Result<(), ImageError> {
        if self.is_asked {
            return Ok(());
        }
        self.is_asked = true;
        let Some(dynamic) = Dynamic::read(self, memory)? else { return Ok(()) };
        let Dynamic { strings: Some(strtab), symbols: Some(symtab), .. } = dynamic else { return Ok(()) };
        let Dynamic { strings_size: strsz, gnu_hash, hash, imports, imports_size, .. } = dynamic;
        let count = match (gnu_hash, hash) {
            (Some(addr), _) => self.count_by_gnu_hash(memory, addr)?,
            (None, Some(addr)) => u64::from(memory.read_u32(addr.offset(4))?),
            (None, None) => return Ok(()),
        };
        if count > MAX_SYMBOLS || strsz > MAX_TABLE {
            return Err(Corrupt("size of the symbol or string table"));
        }
        let imports_size = if imports_size <= MAX_TABLE { imports_size } else { 0 };
        let bytes = count * (SYMBOL + size_of::<(u32, u32)>()) as u64 + strsz + imports_size;
        if let Some(limits) = limits {
            self.share = limits.share(bytes);
            if self.share.is_none() && !limits.is_over() {
                limits.leave_out("symbols of an object in memory", "they take more memory than one look may use");
            }
            self.share.as_ref().ok_or(Corrupt("more symbols than there is room for"))?;
        }
        let mut symbols = vec![[0; SYMBOL]; count as usize];
        memory.read_exact(symtab, symbols.as_flattened_mut())?;
        (self.strings, self.symbols) = ((strtab, strsz), symbols);
        // Without them only calls that were never made lack their names.
        let imports = imports.and_then(|imports| memory.read_vec(imports, imports_size as usize).ok());
        self.imports = imports.unwrap_or_default();
        (self.names, self.by_start) = Default::default();
        Ok(())
    }

    /// Reads all names, for when the memory may be gone.
    #[cfg(feature = "profile")]
    pub(crate) fn hold_names(&self, memory: &dyn Memory) {
        self.names(memory);
    }

    /// All names; none where they cannot be read.
    fn names(&self, memory: &dyn Memory) -> &ImageNames {
        self.names.get_or_init(|| self.read_names(memory).unwrap_or_default())
    }

    fn read_names(&self, memory: &dyn Memory) -> Option<ImageNames> {
        let (at, size) = self.strings;
        let strings = memory.read_vec(at, usize::try_from(size).ok()?).ok()?;
        let mut left = (size + self.symbols.len() as u64 + MAX_NAME as u64) * MAX_SHARING;
        let mut by_hash = Vec::new();
        let symbols = (0..).zip(self.symbols.iter().map(RawSymbol::of));
        for (index, symbol) in symbols.filter(|(_, symbol)| symbol.is_defined()) {
            let name = name_at(&strings, symbol.name);
            let searched = name.map_or(MAX_NAME, <[u8]>::len) as u64 + 1;
            // Names that lie over one another.
            left = left.checked_sub(searched)?;
            by_hash.extend(name.map(|name| (name_hash(name), index)));
        }
        by_hash.sort_unstable();
        Some(ImageNames { strings, by_hash })
    }

    /// Whether it uses the function or variable `name` of another object; its symbols must have been read.
    pub(crate) fn uses(&self, memory: &dyn Memory, name: &str) -> bool {
        let (strings, size) = self.strings;
        let length = name.len() as u64 + 1;
        let undefined = self.symbols.iter().map(RawSymbol::of).filter(|symbol| !symbol.is_defined());
        let fitting = undefined.filter(|symbol| u64::from(symbol.name) + length <= size).take(MAX_IMPORTS);
        let places = fitting.map(|symbol| (strings.offset(symbol.name.into()), name.len() + 1));
        read_each(memory, places).iter().any(|bytes| bytes.strip_suffix(b"\0") == Some(name.as_bytes()))
    }

    /// A GNU hash table does not say how many symbols there are: the last chain's end does.
    fn count_by_gnu_hash(&self, memory: &dyn Memory, addr: RemoteAddr) -> Result<u64, ImageError> {
        let header = memory.read_vec(addr, 16)?;
        let (buckets, first, bloom) = (u32_at(&header, 0), u32_at(&header, 4), u32_at(&header, 8));
        if u64::from(buckets) > MAX_SYMBOLS || u64::from(bloom) > MAX_SYMBOLS || u64::from(first) > MAX_SYMBOLS {
            return Err(Corrupt("hash table header"));
        }
        let table = addr.offset(16 + u64::from(bloom) * 8);
        let heads = memory.read_vec(table, buckets as usize * 4)?;
        let last = heads.chunks_exact(4).map(|head| u32_at(head, 0)).max().unwrap_or(0);
        if last < first {
            return Ok(u64::from(first));
        }
        let chains = table.offset(u64::from(buckets) * 4);
        // The chain that begins last ends last; the low bit marks its end. Chains are short, so a
        // piece at a time: a hostile target cannot make this many small reads.
        let mut index = u64::from(last);
        let mut piece = [0; 4096];
        while index < MAX_SYMBOLS {
            let got = memory.read_at(chains.offset((index - u64::from(first)) * 4), &mut piece)? / 4 * 4;
            if got == 0 {
                break;
            }
            if let Some(end) = piece[..got].chunks_exact(4).position(|word| word[0] & 1 == 1) {
                return Ok(index + end as u64 + 1);
            }
            index += got as u64 / 4;
        }
        Err(Corrupt("hash chain without an end"))
    }

    fn symbol(&self, index: u32) -> Option<RawSymbol> {
        self.symbols.get(index as usize).map(RawSymbol::of)
    }

    /// The name of one symbol.
    fn name_of(&self, memory: &dyn Memory, symbol: &RawSymbol) -> Option<Vec<u8>> {
        if let Some(names) = self.names.get() {
            return name_at(&names.strings, symbol.name).map(<[u8]>::to_vec);
        }
        let (strings, size) = self.strings;
        let room = usize::try_from(size.checked_sub(symbol.name.into())?).ok()?.min(MAX_NAME);
        let lengths = [USUAL_NAME.min(room), room];
        lengths.into_iter().find_map(|length| {
            let bytes = memory.read_up_to(strings.offset(symbol.name.into()), length).ok()?;
            name_at(&bytes, 0).map(<[u8]>::to_vec)
        })
    }

    /// Name, link-time address and size of every dynamic variable; its symbols must have been read.
    pub fn data_symbols(&self, memory: &dyn Memory) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let names = self.names(memory);
        let symbols = names.by_hash.iter().filter_map(|(_, index)| self.symbol(*index)).filter(RawSymbol::is_data);
        symbols.filter_map(|symbol| Some((name_at(&names.strings, symbol.name)?, symbol.value, symbol.size)))
    }

    /// Address of a dynamic symbol; its symbols must have been read.
    pub fn address_of(&self, memory: &dyn Memory, name: &str) -> Option<RemoteAddr> {
        let ImageNames { strings, by_hash } = self.names(memory);
        let hash = name_hash(name.as_bytes());
        let from = by_hash.partition_point(|(other, _)| *other < hash);
        let alike = by_hash[from..].iter().take_while(|(other, _)| *other == hash);
        let symbol = alike
            .filter_map(|(_, index)| self.symbol(*index))
            .find(|symbol| name_at(strings, symbol.name) == Some(name.as_bytes()))?;
        Some(RemoteAddr(symbol.value.wrapping_add(self.bias)))
    }

    /// Name of the function that the procedure linkage table has for the slot at `addr`.
    pub fn import_at(&self, memory: &dyn Memory, addr: RemoteAddr) -> Option<String> {
        let value = addr.0.wrapping_sub(self.bias);
        let entry = self.imports.chunks_exact(24).find(|entry| u64_at(entry, 0) == value)?;
        let symbol = self.symbol(u32::try_from(u64_at(entry, 8) >> 32).ok()?)?;
        Some(String::from_utf8_lossy(&self.name_of(memory, &symbol)?).into_owned())
    }

    /// The dynamic function that holds the run-time address `addr`; of several names, the one a program would
    /// call: that with the fewest underscores in front.
    pub fn function_at(&self, memory: &dyn Memory, addr: RemoteAddr) -> Option<Symbol> {
        let addr = addr.0.wrapping_sub(self.bias);
        let functions = self.by_start.get_or_init(|| self.functions_by_start());
        let before = &functions[..functions.partition_point(|function| function.value <= addr)];
        // Where no function that begins earlier reaches as far as this, none holds it.
        let near = before.iter().rev().take_while(|function| function.end > addr || function.value == addr);
        let symbols = near.filter_map(|function| self.symbol(function.index));
        let mut holding = symbols.filter(|symbol| holds(symbol.value, symbol.size, addr));
        let first = holding.next()?;
        let alike = holding.take_while(|symbol| symbol.value == first.value);
        let named = [first].into_iter().chain(alike.take(MAX_NAMES_AT_ONE_PLACE));
        let named = named.filter_map(|symbol| Some((symbol, self.name_of(memory, &symbol)?)));
        let (best, name) = named.min_by(|(_, a), (_, b)| plainness(a).cmp(&plainness(b)))?;
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Symbol { name, addr: RemoteAddr(best.value.wrapping_add(self.bias)), size: best.size })
    }

    fn functions_by_start(&self) -> Vec<FunctionStart> {
        let numbered = (0..self.symbols.len() as u32).filter_map(|index| Some((index, self.symbol(index)?)));
        let functions = numbered.filter(|(_, symbol)| symbol.is_function());
        let start = |(index, symbol): (u32, RawSymbol)| FunctionStart {
            value: symbol.value,
            index,
            end: symbol.value.saturating_add(symbol.size),
        };
        let mut functions: Vec<FunctionStart> = functions.map(start).collect();
        functions.sort_unstable_by_key(|function| function.value);
        let mut end = 0;
        for function in &mut functions {
            end = function.end.max(end);
            function.end = end;
        }
        functions
    }
}

/// Finds `NT_GNU_BUILD_ID` in note bytes.
pub(super) fn build_id_in_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    while notes.len() >= 12 {
        let (name_len, desc_len) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let kind = u32_at(notes, 8);
        let desc_at = 12usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let desc = notes.get(desc_at..desc_at.checked_add(desc_len)?)?;
        if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
            return Some(desc.to_vec());
        }
        notes = notes.get(desc_at.checked_add(desc_len.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

pub(super) fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn notes_that_lie_about_their_sizes_are_refused() {
        let good = [4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 0xcd, 0, 0];
        assert_eq!(build_id_in_notes(&good), Some(vec![0xab, 0xcd]));
        for at in 0..12 {
            let mut bad = good;
            bad[at] = 0xff;
            let _ = build_id_in_notes(&bad);
        }
        for cut in 0..good.len() {
            let _ = build_id_in_notes(&good[..cut]);
        }
    }

    #[test]
    fn not_elf_is_said() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), vec![0; 64]);
        assert!(matches!(Image::load(&target, RemoteAddr(0x1000)), Err(ImageError::NotElf)));
        assert!(matches!(Image::load(&target, RemoteAddr(0x9000)), Err(ImageError::Read(_))));
    }
}
