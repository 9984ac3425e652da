//! Patching the slots of all objects, so that calls come to us, and restoring them.
//!
//! A slot is patched only if it leads where we lead on to: to the same function of the C library, or to the loader,
//! which would find that. What leads elsewhere (to another library that stands in the C library's place, to an old
//! version of a function) is left alone.

use crate::objects::{self, Info, Object, Slot};
use crate::records::{self, Record};
use crate::{elf, functions, load, sys};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use table::Library;

/// Whoever patches or restores holds this, inside the lock of the loader's list. Never while anything is called that may
/// wait for somebody who wants it.
static LOCK: AtomicU32 = AtomicU32::new(0);

struct Held;

impl Held {
    fn new() -> Self {
        while LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            sys::nap(50_000);
        }
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        LOCK.store(0, Release);
    }
}

/// Calls `act` while nobody else patches, and the loader's list stands still.
pub fn locked(act: impl FnOnce()) {
    objects::hold(|| {
        let _held = Held::new();
        act();
    });
}

/// A child has no other threads.
pub fn forget_lock() {
    LOCK.store(0, Relaxed);
}

/// Hooks: the functions, then those that load objects.
pub const HOOKS: usize = functions::COUNT + load::COUNT;

/// Before glibc 2.34 the C library is several objects, and some functions are in two of them: the other one of each.
static OTHERS: [AtomicUsize; HOOKS] = [const { AtomicUsize::new(0) }; HOOKS];
static HAS_OTHERS: AtomicU32 = AtomicU32::new(0);

fn find_others() {
    if HAS_OTHERS.swap(1, Relaxed) != 0 {
        return;
    }
    // Only if we lead on to the C library itself, and not to somebody who stands in its place.
    let mut is_libcs = [false; HOOKS];
    let mut others = [0; HOOKS];
    objects::for_each(|info| {
        if !is_libc(info) {
            return;
        }
        for number in 0..HOOKS {
            match info.function(name(number)) {
                0 => {}
                found if found == real(number) => is_libcs[number] = true,
                found => others[number] = found,
            }
        }
    });
    for number in (0..HOOKS).filter(|number| is_libcs[*number]) {
        OTHERS[number].store(others[number], Relaxed);
    }
}

fn other(number: usize) -> usize {
    OTHERS[number].load(Relaxed)
}

/// Whether a function is what we lead on to.
pub fn is_real(number: usize, address: usize) -> bool {
    address != 0 && (address == real(number) || address == other(number))
}

fn real(number: usize) -> usize {
    match number.checked_sub(functions::COUNT) {
        None => functions::REALS[number].load(Relaxed),
        Some(number) => load::real(number),
    }
}

fn entry(number: usize) -> usize {
    match number.checked_sub(functions::COUNT) {
        None => functions::entry(number),
        Some(number) => load::entry(number),
    }
}

fn hook_named(name: *const c_char) -> Option<usize> {
    // SAFETY: a name of a symbol; looked at one byte after the other.
    let first = unsafe { name.read() } as u8;
    if !matches!(first, b'p' | b's' | b'm' | b'c' | b'd') {
        return None;
    }
    // SAFETY: both end with a zero.
    (0..HOOKS).find(|number| unsafe { elf::is_same(name, self::name(*number)) })
}

/// What a function is called.
pub fn name(number: usize) -> &'static CStr {
    match number.checked_sub(functions::COUNT) {
        None => functions::NAMES[number],
        Some(number) => load::NAMES[number],
    }
}

/// Whether an object is part of the C library, which calls itself without asking us.
fn is_libc(info: &Info) -> bool {
    use Library::{Libc, Loader, Musl, PlainLibc, Threads};
    // SAFETY: the loader's string.
    let name = unsafe { elf::file_name(info.name) };
    matches!(Library::of(name), Libc | PlainLibc | Threads | Loader | Musl) || name.starts_with("linux-vdso")
}

/// What a look has found.
#[derive(Default)]
pub struct Look {
    /// Slots that are patched.
    pub patched: u32,
    /// Slots that could not be.
    pub missed: u32,
    /// Slots of objects that the loader is not done with.
    pub unready: u32,
}

/// Patches all slots that are not, and keeps what was in them.
pub fn patch() -> Look {
    let mut look = Look::default();
    locked(|| look = pass(|_| true, |_| true, records::keep));
    look
}

/// Patches the slots of those objects for which `is_wanted` holds, for ever. Those that lead nowhere yet only if `finds`
/// says that the loader would find there what we lead on to. Under the lock.
pub fn patch_some(is_wanted: impl FnMut(&Info) -> bool, finds: impl FnMut(usize) -> bool) {
    pass(is_wanted, finds, |_| true);
}

fn pass(
    mut is_wanted: impl FnMut(&Info) -> bool,
    mut finds: impl FnMut(usize) -> bool,
    keep: impl Fn(Record) -> bool,
) -> Look {
    find_others();
    let mut look = Look::default();
    let (reals, others, ours) = (bounds(real), bounds(other), bounds(entry));
    let is_near = |value: usize| [reals, others].iter().any(|(low, high)| (*low..=*high).contains(&value));
    objects::for_each(|info| {
        let is_wanted = is_wanted(info) && !is_libc(info);
        let Some(object) = Object::new(info).filter(|_| is_wanted) else { return };
        object.for_each_slot(|slot| {
            let value = read(slot.address);
            let is_lazy = slot.is_call && object.is_code(value);
            // Ours may be between theirs.
            if is_ours(value, ours) {
                look.patched += 1;
                return;
            }
            if !is_lazy && !is_near(value) {
                return;
            }
            let Some(number) = hook_named(slot.name) else { return };
            if real(number) == 0 || !(is_lazy || is_real(number, value)) {
                return;
            }
            // The old condition variables, of before 2003, are another sort of object.
            let is_old = |slot: &Slot| object.has_version(slot, b"GLIBC_2.2.5\0");
            if is_lazy && ((7..=13).contains(&number) && is_old(slot) || !finds(number)) {
                return;
            }
            // A page that can be written where it must not be: the loader still does so, and would not find it so.
            if slot.is_relro && sys::is_writable(slot.address) {
                look.unready += 1;
                return;
            }
            let record = Record { slot: slot.address, was: value, number: number as u32, is_relro: slot.is_relro };
            let is_done = keep(record) && write(&record, value, entry(number));
            look.patched += u32::from(is_done);
            look.missed += u32::from(!is_done);
        });
    });
    look
}

/// Restores all slots. How many are still patched, because their pages could not be made writable.
pub fn restore() -> u32 {
    let mut left = 0;
    locked(|| left = restore_all());
    left
}

fn restore_all() -> u32 {
    let mut left = 0;
    let ours = bounds(entry);
    objects::for_each(|info| {
        let Some(object) = Object::new(info) else { return };
        object.for_each_slot(|slot| {
            let value = read(slot.address);
            if !is_ours(value, ours) {
                return;
            }
            let Some(number) = (0..HOOKS).find(|number| entry(*number) == value) else { return };
            let was = records::find(slot.address).filter(|record| record.number == number as u32);
            // Without a record (there always is one) the function itself is as good.
            let was = was.map_or(real(number), |record| record.was);
            let record = Record { slot: slot.address, was, number: number as u32, is_relro: slot.is_relro };
            left += u32::from(!write(&record, value, was));
        });
    });
    if left == 0 {
        records::clear();
    }
    left
}

/// In a forked child: restores what is recorded. The loader cannot be asked: another thread may have been in it. What
/// was unloaded since is not there, or something else is, which the kernel tells without a fault.
pub fn restore_in_child() {
    for record in records::all() {
        let slot = record.slot;
        if sys::peek(slot) != Some(entry(record.number as usize)) {
            continue;
        }
        let page = slot & !4095;
        if record.is_relro && !sys::protect(page, 4096, true) {
            continue;
        }
        sys::poke(slot, record.was);
        if record.is_relro {
            sys::protect(page, 4096, false);
        }
    }
    records::clear();
}

fn bounds(of: fn(usize) -> usize) -> (usize, usize) {
    let all = || (0..HOOKS).map(of).filter(|address| *address != 0);
    (all().min().unwrap_or(usize::MAX), all().max().unwrap_or(0))
}

fn is_ours(value: usize, (low, high): (usize, usize)) -> bool {
    (low..=high).contains(&value) && (0..HOOKS).any(|number| entry(number) == value)
}

fn slot_at(address: usize) -> &'static AtomicUsize {
    // SAFETY: an aligned word of an object that is loaded, which the loader and we write in one piece.
    unsafe { AtomicUsize::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
}

fn read(address: usize) -> usize {
    slot_at(address).load(Relaxed)
}

/// Puts `new` in a slot that holds `old`. If the loader has resolved the slot meanwhile, the next pass sees it.
fn write(record: &Record, old: usize, new: usize) -> bool {
    let page = record.slot & !4095;
    if record.is_relro && !sys::protect(page, 4096, true) {
        return false;
    }
    let is_done = slot_at(record.slot).compare_exchange(old, new, AcqRel, Relaxed).is_ok();
    if record.is_relro {
        sys::protect(page, 4096, false);
    }
    is_done
}
