//! Finding functions in the objects behind us, as `dlsym(RTLD_NEXT, ..)` does, but without its locks and memory: this
//! may run inside anything, before anything is set up.

use core::ffi::{CStr, c_char};
use core::ptr;

#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

/// An entry of a dynamic section.
#[repr(C)]
pub struct Dynamic {
    pub tag: i64,
    pub value: usize,
}

#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
}

/// An entry of a symbol table.
#[repr(C)]
pub struct Symbol {
    pub name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

unsafe extern "C" {
    /// The loader's list of objects, for debuggers.
    static _r_debug: Debug;
    /// Our own dynamic section.
    static _DYNAMIC: Dynamic;
}

/// A symbol, and the object it is in.
pub struct FoundSymbol {
    pub address: usize,
    /// Path of the object, ended by a zero; NULL if it has none.
    pub object: *const c_char,
}

/// The symbol in the first object behind this one that has it; in the default version, or else in the last. If this
/// one was loaded last, by a program that was running, the first object of all that has it.
pub fn next(name: &CStr) -> Option<FoundSymbol> {
    behind(name).or_else(|| before(name))
}

/// Whether the program had started before this object was loaded.
pub fn is_late() -> bool {
    behind(c"pthread_mutex_lock").is_none()
}

fn before(name: &CStr) -> Option<FoundSymbol> {
    // SAFETY: the loader's list; whoever loads this object keeps others from changing it.
    unsafe {
        let own = &raw const _DYNAMIC;
        let mut map = _r_debug.map;
        while !map.is_null() && (*map).dynamic != own {
            if let Some(address) = in_object((*map).base, (*map).dynamic, name) {
                return Some(FoundSymbol { address, object: (*map).name });
            }
            map = (*map).next;
        }
    }
    None
}

fn behind(name: &CStr) -> Option<FoundSymbol> {
    // SAFETY: the loader's list, which only grows while the program starts; each node stays as it is while loaded.
    unsafe {
        let own = &raw const _DYNAMIC;
        let mut map = _r_debug.map;
        while !map.is_null() && (*map).dynamic != own {
            map = (*map).next;
        }
        while !map.is_null() {
            map = (*map).next;
            if let Some(address) = map.as_ref().and_then(|map| in_object(map.base, map.dynamic, name)) {
                return Some(FoundSymbol { address, object: (*map).name });
            }
        }
    }
    None
}

/// The symbol in the first object of all that has it.
pub fn first(name: &CStr) -> Option<FoundSymbol> {
    // SAFETY: as above.
    unsafe {
        let mut map = _r_debug.map;
        while let Some(object) = map.as_ref() {
            if let Some(address) = in_object(object.base, object.dynamic, name) {
                return Some(FoundSymbol { address, object: object.name });
            }
            map = object.next;
        }
    }
    None
}

/// The symbol in the object with that base and dynamic section.
pub unsafe fn in_object(base: usize, mut dynamic: *const Dynamic, name: &CStr) -> Option<usize> {
    const STRTAB: i64 = 5;
    const SYMTAB: i64 = 6;
    const VERSYM: i64 = 0x6fff_fff0;
    const GNU_HASH: i64 = 0x6fff_fef5;
    const HIDDEN: u16 = 0x8000;
    // SAFETY: what the loader itself has read of an object that it has loaded.
    unsafe {
        let (mut strings, mut symbols, mut versions, mut hash) = (0, 0, 0, 0);
        while !dynamic.is_null() && (*dynamic).tag != 0 {
            // The loader has added the base to these, unless it cannot write there (the vDSO).
            let value = (*dynamic).value;
            let address = if value < base { value.wrapping_add(base) } else { value };
            match (*dynamic).tag {
                STRTAB => strings = address,
                SYMTAB => symbols = address,
                VERSYM => versions = address,
                GNU_HASH => hash = address,
                _ => {}
            }
            dynamic = dynamic.add(1);
        }
        if strings == 0 || symbols == 0 || hash == 0 {
            return None;
        }
        let strings: *const c_char = ptr::with_exposed_provenance(strings);
        let symbols: *const Symbol = ptr::with_exposed_provenance(symbols);
        let versions: *const u16 = ptr::with_exposed_provenance(versions);
        let hash: *const u32 = ptr::with_exposed_provenance(hash);
        let wanted = name.to_bytes().iter().fold(5381_u32, |h, byte| h.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let (buckets, first, bloom) = (hash.read(), hash.add(1).read(), hash.add(2).read() as usize);
        if buckets == 0 {
            return None;
        }
        let bucket_at = hash.add(4 + 2 * bloom);
        let chain_at = bucket_at.add(buckets as usize);
        let mut number = bucket_at.add((wanted % buckets) as usize).read();
        if number < first {
            return None;
        }
        let mut best = None;
        loop {
            let chained = chain_at.add((number - first) as usize).read();
            let symbol = &*symbols.add(number as usize);
            if chained | 1 == wanted | 1 && symbol.section != 0 && is_same(strings.add(symbol.name as usize), name) {
                let address = base.wrapping_add(symbol.value);
                if versions.is_null() || versions.add(number as usize).read() & HIDDEN == 0 {
                    return Some(address);
                }
                best = Some(address);
            }
            if chained & 1 != 0 {
                return best;
            }
            number += 1;
        }
    }
}

/// Byte by byte: the C library's own functions for this are among what may not be ready yet.
pub unsafe fn is_same(text: *const c_char, name: &CStr) -> bool {
    // SAFETY: `text` ends with a zero, and so does `name`: they differ there at the latest.
    name.to_bytes_with_nul().iter().enumerate().all(|(at, byte)| unsafe { text.add(at).read() as u8 } == *byte)
}

/// The last part of a path.
pub unsafe fn file_name<'a>(path: *const c_char) -> &'a str {
    if path.is_null() {
        return "";
    }
    // SAFETY: the loader's strings end with a zero.
    let length = (0..).take_while(|at| unsafe { path.add(*at).read() } != 0).count();
    // SAFETY: so long it is, and it stays as long as its object, which outlives the look.
    let path = unsafe { core::slice::from_raw_parts(path.cast::<u8>(), length) };
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    core::str::from_utf8(file).unwrap_or_default()
}
