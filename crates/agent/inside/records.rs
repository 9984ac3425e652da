//! What was in the slots before they were patched. Written before a slot is, so that nothing is ever lost.

use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// A slot: where it is, what was in it, which function it is for, and whether its page can only be read.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Record {
    pub slot: usize,
    pub was: usize,
    pub number: u32,
    pub is_relro: bool,
}

/// Room for so many: no program has as many slots for locks.
const ROOM: usize = 1 << 15;

static START: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Gets memory for them, once.
pub fn begin() -> bool {
    if START.load(Relaxed) == 0 {
        let Some(start) = sys::map(ROOM * size_of::<Record>()) else { return false };
        sys::name(start, ROOM * size_of::<Record>(), c"threadglass-slots");
        START.store(start, Relaxed);
    }
    true
}

fn at(number: usize) -> *mut Record {
    ptr::with_exposed_provenance_mut::<Record>(START.load(Relaxed)).wrapping_add(number)
}

/// All of them.
pub fn all() -> impl Iterator<Item = Record> {
    // SAFETY: written before they were counted, and only changed by whoever holds the lock of `got.rs`.
    (0..COUNT.load(Acquire) as usize).map(|number| unsafe { at(number).read() })
}

/// Keeps a record, in place of an older one of the same slot (whose object has gone since). `false` if there is no
/// room.
pub fn keep(record: Record) -> bool {
    let count = COUNT.load(Relaxed) as usize;
    let place = all().position(|other| other.slot == record.slot).unwrap_or(count);
    if place >= ROOM {
        return false;
    }
    // SAFETY: inside the memory, under the lock.
    unsafe { at(place).write(record) };
    if place == count {
        COUNT.store(count as u32 + 1, Release);
    }
    true
}

/// What was in a slot.
pub fn find(slot: usize) -> Option<Record> {
    all().find(|record| record.slot == slot)
}

/// Forgets all of them.
pub fn clear() {
    COUNT.store(0, Release);
}
