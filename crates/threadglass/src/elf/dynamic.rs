//! What an object in memory tells the dynamic linker, and one symbol of it without reading all of them.

use super::image::{Image, ImageError, name_hash};
use super::object_file::{RawSymbol, SYMBOL};
use super::program_header::PT_DYNAMIC;
use super::{Symbol, u32_at, u64_at};
use crate::RemoteAddr;
use crate::memory::Memory;

const MAX_DYNAMIC: u64 = 64 << 10;
/// Symbols of one chain that are looked at. Chains have a few.
const MAX_CHAIN: u64 = 1024;

/// Where the tables of an object are.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    pub(super) strings: Option<RemoteAddr>,
    pub(super) strings_size: u64,
    pub(super) symbols: Option<RemoteAddr>,
    pub(super) gnu_hash: Option<RemoteAddr>,
    pub(super) hash: Option<RemoteAddr>,
    pub(super) imports: Option<RemoteAddr>,
    pub(super) imports_size: u64,
}

impl Dynamic {
    /// Of the object `image`; `None` if it has none.
    pub(super) fn read(image: &Image, memory: &dyn Memory) -> Result<Option<Self>, ImageError> {
        let Some((at, header)) = image.of_kind(PT_DYNAMIC).next() else { return Ok(None) };
        if header.memory_size > MAX_DYNAMIC {
            return Err(ImageError::Corrupt("size of the dynamic section"));
        }
        let entries = memory.read_vec(at, header.memory_size as usize)?;
        let mut found = Self::default();
        for entry in entries.chunks_exact(16) {
            let value = u64_at(entry, 8);
            // The dynamic linker turns these into addresses in place; the vDSO keeps offsets.
            let value_at = if value < image.base().0 { value.wrapping_add(image.bias()) } else { value };
            let addr = Some(RemoteAddr(value_at));
            match u64_at(entry, 0) {
                0 => break,
                2 => found.imports_size = value,
                4 => found.hash = addr,
                5 => found.strings = addr,
                6 => found.symbols = addr,
                10 => found.strings_size = value,
                23 => found.imports = addr,
                0x6fff_fef5 => found.gnu_hash = addr,
                _ => {}
            }
        }
        Ok(Some(found))
    }
}

impl Image {
    /// The exported symbol `name`, by the object's hash table: a few small reads, however many symbols there are.
    pub(crate) fn find_export(&self, memory: &dyn Memory, name: &str) -> Option<Symbol> {
        let dynamic = Dynamic::read(self, memory).ok()??;
        let (table, symbols, strings) = (dynamic.gnu_hash?, dynamic.symbols?, dynamic.strings?);
        let header = memory.read_vec(table, 16).ok()?;
        let word = |at| u64::from(u32_at(&header, at));
        let (buckets, first, filters, shift) = (word(0), word(4), word(8), u32_at(&header, 12));
        let hash = name_hash(name.as_bytes());
        let wide = u64::from(hash);
        // Two bits of a word say whether the name may be there at all.
        let filter_at = (wide / 64).checked_rem(filters)?.checked_mul(8)?.checked_add(16)?;
        let filter = memory.read_u64(table.checked_add(filter_at)?).ok()?;
        if filter >> (hash % 64) & 1 == 0 || filter >> (hash.checked_shr(shift)? % 64) & 1 == 0 {
            return None;
        }
        let heads = table.checked_add(16 + filters * 8)?;
        let head = u64::from(memory.read_u32(heads.checked_add(wide.checked_rem(buckets)? * 4)?).ok()?);
        let chains = heads.checked_add(buckets * 4)?;
        for index in (head.checked_sub(first)?..).take(MAX_CHAIN as usize) {
            let link = memory.read_u32(chains.checked_add(index * 4)?).ok()?;
            if link | 1 == hash | 1 {
                let at = symbols.checked_add((first + index).checked_mul(SYMBOL as u64)?)?;
                let mut entry = [0; SYMBOL];
                memory.read_exact(at, &mut entry).ok()?;
                let symbol = RawSymbol::of(&entry);
                let found = memory.read_vec(strings.checked_add(u64::from(symbol.name))?, name.len() + 1).ok()?;
                if found.strip_suffix(&[0]) == Some(name.as_bytes()) && symbol.is_defined() {
                    let addr = RemoteAddr(symbol.value.wrapping_add(self.bias()));
                    return Some(Symbol { name: name.to_owned(), addr, size: symbol.size });
                }
            }
            if link & 1 == 1 {
                break;
            }
        }
        None
    }
}
