//! The program's objects, and their slots for functions: where the loader has written the address of a function that
//! another object has.

use crate::attach;
use crate::elf::{self, Dynamic, Symbol};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// What `dl_iterate_phdr` tells of an object.
#[repr(C)]
pub struct Info {
    base: usize,
    pub name: *const c_char,
    headers: *const Header,
    count: u16,
}

#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    size: usize,
    align: usize,
}

#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// A slot.
pub struct Slot {
    pub address: usize,
    /// Whether a call through it may not have been resolved yet.
    pub is_call: bool,
    /// Whether its page can only be read.
    pub is_relro: bool,
    /// The name of the function, ended by a zero.
    pub name: *const c_char,
    symbol: usize,
}

/// An object, as far as its slots are concerned.
pub struct Object {
    base: usize,
    headers: &'static [Header],
    relro: (usize, usize),
    strings: usize,
    symbols: usize,
    versions: usize,
    needed: usize,
    tables: [(usize, usize); 2],
    relative: usize,
}

const PAGE: usize = 4096;

static ITERATE: AtomicUsize = AtomicUsize::new(0);

/// Finds the C library's functions that go through the objects and load more. The first is in an object that was there
/// from the beginning.
pub fn find() {
    ITERATE.store(elf::next(c"dl_iterate_phdr").map_or(0, |found| found.address), Relaxed);
    crate::load::find();
}

/// Calls `act` for each object. None is unloaded meanwhile.
pub fn for_each(mut act: impl FnMut(&Info)) -> bool {
    until(|info| {
        act(info);
        false
    })
}

/// Calls `act` once, while nobody adds objects to the loader's list or removes any. It may go through the objects.
pub fn hold(act: impl FnOnce()) -> bool {
    let mut act = Some(act);
    until(|_| {
        if let Some(act) = act.take() {
            act();
        }
        true
    })
}

/// Calls `act` for each object until it says that it is done.
fn until<F: FnMut(&Info) -> bool>(mut act: F) -> bool {
    type Callback = unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int;
    type Iterate = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
    unsafe extern "C" fn each<F: FnMut(&Info) -> bool>(info: *const Info, _: usize, act: *mut c_void) -> c_int {
        // SAFETY: both live through the call.
        c_int::from(unsafe { (*act.cast::<F>())(&*info) })
    }
    let address = ITERATE.load(Relaxed);
    if address == 0 {
        return false;
    }
    // SAFETY: found under this name.
    let iterate: Iterate = unsafe { transmute(address) };
    // SAFETY: as documented; the callback neither unwinds nor waits for anything of the program's. The loader's lock
    // that is held meanwhile may be taken again by the same thread.
    unsafe { iterate(each::<F>, (&raw mut act).cast()) };
    true
}

/// The function in the first object behind us that has it, or in the first of all if we came last: as `elf::next`, at
/// any time.
pub fn function(name: &CStr) -> usize {
    let (mut before, mut behind, mut is_behind) = (0, 0, false);
    for_each(|info| {
        if info.has(here()) {
            is_behind = true;
        } else {
            let place = if is_behind { &mut behind } else { &mut before };
            *place = if *place == 0 { info.function(name) } else { *place };
        }
    });
    if behind != 0 || !attach::is_late() { behind } else { before }
}

/// An address inside us.
fn here() -> usize {
    here as *const () as usize
}

impl Info {
    fn headers(&self) -> &'static [Header] {
        if self.headers.is_null() {
            return &[];
        }
        // SAFETY: the loader's own array.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }

    fn at(&self, header: &Header) -> usize {
        self.base.wrapping_add(header.address)
    }

    /// Whether an address is inside it.
    pub fn has(&self, address: usize) -> bool {
        const LOAD: u32 = 1;
        let is_in = |header: &Header| (self.at(header)..self.at(header).wrapping_add(header.size)).contains(&address);
        self.headers().iter().any(|header| header.kind == LOAD && is_in(header))
    }

    /// Where its dynamic section is, or 0.
    pub fn dynamic(&self) -> usize {
        const DYNAMIC: u32 = 2;
        self.headers().iter().find(|header| header.kind == DYNAMIC).map_or(0, |header| self.at(header))
    }

    /// The entries of its dynamic section: tags and values.
    pub fn entries(&self) -> impl Iterator<Item = (i64, usize)> {
        let mut at: *const Dynamic = ptr::with_exposed_provenance(self.dynamic());
        core::iter::from_fn(move || {
            // SAFETY: a dynamic section that the loader has read, ended by a zero.
            let entry = unsafe { at.as_ref() }.filter(|entry| entry.tag != 0)?;
            at = at.wrapping_add(1);
            Some((entry.tag, entry.value))
        })
    }

    /// Its function of that name, or 0.
    pub fn function(&self, name: &CStr) -> usize {
        let dynamic = ptr::with_exposed_provenance(self.dynamic());
        // SAFETY: of an object that the loader has loaded.
        unsafe { elf::in_object(self.base, dynamic, name) }.unwrap_or(0)
    }

    /// A string of its dynamic section.
    pub fn string(&self, offset: usize) -> *const c_char {
        const STRTAB: i64 = 5;
        let table = self.entries().find(|(tag, _)| *tag == STRTAB).map_or(0, |(_, value)| value);
        let table = if table < self.base { table.wrapping_add(self.base) } else { table };
        ptr::with_exposed_provenance(table.wrapping_add(offset))
    }
}

impl Object {
    /// The object, if it has slots and is not ours.
    pub fn new(info: &Info) -> Option<Self> {
        const RELRO: u32 = 0x6474_e552;
        let (headers, dynamic) = (info.headers(), info.dynamic());
        if info.has(here()) || dynamic == 0 {
            return None;
        }
        // As the loader does it: the page in which it ends stays as it is.
        let page = |address: usize| address & !(PAGE - 1);
        let relro = headers.iter().find(|header| header.kind == RELRO);
        let relro =
            relro.map_or((0, 0), |header| (page(info.at(header)), page(info.at(header).wrapping_add(header.size))));
        let mut object = Self {
            base: info.base,
            headers,
            relro,
            strings: 0,
            symbols: 0,
            versions: 0,
            needed: 0,
            tables: [(0, 0); 2],
            relative: 0,
        };
        // SAFETY: a dynamic section that the loader has read.
        unsafe { object.read(ptr::with_exposed_provenance(dynamic)) };
        (object.strings != 0 && object.symbols != 0).then_some(object)
    }

    unsafe fn read(&mut self, mut dynamic: *const Dynamic) {
        const RELA: usize = 7;
        let mut plt_kind = RELA;
        // SAFETY: ended by a zero.
        unsafe {
            while (*dynamic).tag != 0 {
                let value = (*dynamic).value;
                // The loader has added the base to these, unless it cannot write there.
                let address = if value < self.base { value.wrapping_add(self.base) } else { value };
                match (*dynamic).tag {
                    2 => self.tables[0].1 = value,
                    5 => self.strings = address,
                    6 => self.symbols = address,
                    7 => self.tables[1].0 = address,
                    8 => self.tables[1].1 = value,
                    20 => plt_kind = value,
                    23 => self.tables[0].0 = address,
                    0x6fff_fff0 => self.versions = address,
                    0x6fff_fff9 => self.relative = value,
                    0x6fff_fffe => self.needed = address,
                    _ => {}
                }
                dynamic = dynamic.add(1);
            }
        }
        if plt_kind != RELA {
            self.tables[0] = (0, 0);
        }
    }

    /// Whether an address is in its code.
    pub fn is_code(&self, address: usize) -> bool {
        const EXECUTE: u32 = 1;
        self.is_in(address, EXECUTE)
    }

    fn is_in(&self, address: usize, flag: u32) -> bool {
        self.headers.iter().any(|header| {
            let start = self.base.wrapping_add(header.address);
            header.kind == 1 && header.flags & flag != 0 && (start..start.wrapping_add(header.size)).contains(&address)
        })
    }

    /// Calls `act` for each slot that holds the address of a function.
    pub fn for_each_slot(&self, mut act: impl FnMut(&Slot)) {
        const ADDRESS: u32 = 1;
        const DATA: u32 = 6;
        const CALL: u32 = 7;
        const WRITE: u32 = 2;
        for (table, (start, bytes)) in self.tables.iter().enumerate() {
            let first: *const Relocation = ptr::with_exposed_provenance(*start);
            if first.is_null() {
                continue;
            }
            // Those that need no symbol come first, and there may be very many of them.
            let skipped = if table == 1 { self.relative } else { 0 };
            for number in skipped..bytes / size_of::<Relocation>() {
                // SAFETY: inside the table, which the loader has gone through too.
                let relocation = unsafe { &*first.add(number) };
                let (kind, symbol) = (relocation.info as u32, (relocation.info >> 32) as usize);
                let is_slot = matches!(kind, DATA | CALL) || kind == ADDRESS && relocation.addend == 0;
                let address = self.base.wrapping_add(relocation.offset);
                if !is_slot || symbol == 0 || !address.is_multiple_of(8) {
                    continue;
                }
                // SAFETY: a symbol of a relocation, and its name.
                let name = unsafe {
                    let symbol = &*ptr::with_exposed_provenance::<Symbol>(self.symbols).add(symbol);
                    ptr::with_exposed_provenance::<c_char>(self.strings).add(symbol.name as usize)
                };
                let is_relro = (self.relro.0..self.relro.1).contains(&address);
                if !is_relro && !self.is_in(address, WRITE) {
                    continue;
                }
                act(&Slot { address, is_call: kind == CALL, is_relro, name, symbol });
            }
        }
    }

    /// Whether the version of a slot's symbol begins with `version`.
    pub fn has_version(&self, slot: &Slot, version: &[u8]) -> bool {
        #[repr(C)]
        struct Need {
            version: u16,
            count: u16,
            file: u32,
            first: u32,
            next: u32,
        }
        #[repr(C)]
        struct Of {
            hash: u32,
            flags: u16,
            number: u16,
            name: u32,
            next: u32,
        }
        if self.versions == 0 || self.needed == 0 {
            return false;
        }
        // SAFETY: tables of an object that the loader has read; every link leads forwards, the last is 0.
        unsafe {
            let wanted = ptr::with_exposed_provenance::<u16>(self.versions).add(slot.symbol).read() & 0x7fff;
            let mut need = ptr::with_exposed_provenance::<Need>(self.needed);
            loop {
                let mut of = need.byte_add((*need).first as usize).cast::<Of>();
                for _ in 0..(*need).count {
                    if (*of).number & 0x7fff == wanted {
                        let name = ptr::with_exposed_provenance::<c_char>(self.strings).add((*of).name as usize);
                        return version.iter().enumerate().all(|(at, byte)| name.add(at).read() as u8 == *byte);
                    }
                    of = of.byte_add((*of).next as usize);
                }
                if (*need).next == 0 {
                    return false;
                }
                need = need.byte_add((*need).next as usize);
            }
        }
    }
}
