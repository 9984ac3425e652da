//! From an address to its entry.
//!
//! A slot of the index goes from 0 to the number of an entry and never back to 0, so whoever looks for an address
//! passes the same slots in the same order as whoever entered it, and two who enter it at the same time meet at the
//! same slot: one of them wins it, the other sees that and uses what it finds.

use crate::{Key, Kind};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Neighbours that are tried before an address is looked for elsewhere, and there.
const NEAR: u32 = 24;
const FAR: u32 = 40;

/// Objects near to each other have slots near to each other: 32 KiB of the program's memory to a page of the index.
const REGION_SHIFT: u32 = 15;
/// Slots of a page.
pub const PAGE_SLOTS: u64 = 1 << 10;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where the slots and keys are.
pub trait Store {
    /// Slots of the index: a power of two, at least 1024.
    fn slots(&self) -> u64;
    /// One of them.
    fn slot(&self, at: u64) -> &AtomicU32;
    /// The key of an entry that was taken.
    fn key(&self, entry: u32) -> &AtomicU64;
    /// Takes so many units; `None` when there are no more.
    fn take(&self, units: u32) -> Option<u32>;
    /// Makes an entry ready for a new object: all statistics zero, the second unit, if it has one, marked.
    fn clear(&self, entry: u32, wide: bool);
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundEntry {
    /// An entry that was there.
    Old(u32),
    /// One that was made.
    New(u32),
    /// There is no room.
    Full,
}

/// The first slot to look at.
#[inline(always)]
pub fn first(address: u64, slots: u64) -> u64 {
    first_of(address, (slots - 1) & !(PAGE_SLOTS - 1))
}

/// The same, with the slots said as a mask of their pages, which a caller in a hurry has at hand.
#[inline(always)]
pub fn first_of(address: u64, pages: u64) -> u64 {
    let page = ((address >> REGION_SHIFT).wrapping_mul(MIX) >> 20) & pages;
    page + ((address >> 5) & (PAGE_SLOTS - 1))
}

/// All slots to look at, in order: neighbours of the first, then those of another place.
pub fn probes(address: u64, slots: u64) -> impl Iterator<Item = u64> {
    let near = first(address, slots);
    let far = address.wrapping_mul(MIX) >> 24;
    let nears = (0..NEAR).map(move |step| (near + u64::from(step)) & (slots - 1));
    nears.chain((0..FAR).map(move |step| far.wrapping_add(u64::from(step)) & (slots - 1)))
}

/// The entry of the object at `address`, made if there is none. One that stands for another kind of object, or for
/// one that has ended, becomes a new one.
pub fn find_or_insert<S: Store>(store: &S, address: u64, kind: Kind) -> FoundEntry {
    let wanted = Key::new(address, kind);
    // Taken when the first free slot is met, and kept for the next one if that goes to somebody else.
    let mut taken = None;
    for at in probes(address, store.slots()) {
        let slot = store.slot(at);
        let mut number = slot.load(Ordering::Acquire);
        if number == 0 {
            let Some(entry) = taken.or_else(|| make(store, wanted, kind)) else { return FoundEntry::Full };
            taken = Some(entry);
            match slot.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return FoundEntry::New(entry),
                Err(other) => number = other,
            }
        }
        let key = Key(store.key(number).load(Ordering::Acquire));
        if key.address() != address {
            continue;
        }
        if let Some(entry) = taken {
            // Somebody else was faster: this one is nobody's.
            store.key(entry).store(0, Ordering::Release);
        }
        if key.is_same(wanted) {
            return FoundEntry::Old(number);
        }
        return renew(store, slot, number, key, kind);
    }
    if let Some(entry) = taken {
        store.key(entry).store(0, Ordering::Release);
    }
    FoundEntry::Full
}

fn make<S: Store>(store: &S, key: Key, kind: Kind) -> Option<u32> {
    let entry = store.take(kind.units())?;
    store.clear(entry, key.is_wide());
    store.key(entry).store(key.0, Ordering::Release);
    Some(entry)
}

/// Lets an entry stand for another object at the same address. Threads that use the old and the new object at the
/// same time are at odds with the program's own rules; they lose counts, no more.
fn renew<S: Store>(store: &S, slot: &AtomicU32, number: u32, old: Key, kind: Kind) -> FoundEntry {
    if kind.units() == 2 && !old.is_wide() {
        let Some(entry) = make(store, Key::new(old.address(), kind), kind) else { return FoundEntry::Full };
        store.key(number).store(0, Ordering::Release);
        slot.store(entry, Ordering::Release);
        return FoundEntry::New(entry);
    }
    let key = store.key(number);
    let mut ended = old;
    if old.kind().is_some() {
        // Of two threads that find the old object, one ends it.
        ended = old.ended();
        if key.compare_exchange(old.0, ended.0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return FoundEntry::Old(number);
        }
        store.clear(number, old.is_wide());
    }
    // What has ended was cleared then, so this one step makes the new object, whoever counts first.
    match key.compare_exchange(ended.0, ended.reborn(kind).0, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => FoundEntry::New(number),
        Err(_) => FoundEntry::Old(number),
    }
}

/// The entry of the object at `address`, if there is one, of whatever kind.
pub fn find<S: Store>(store: &S, address: u64) -> Option<u32> {
    for at in probes(address, store.slots()) {
        let number = store.slot(at).load(Ordering::Acquire);
        if number == 0 {
            return None;
        }
        if Key(store.key(number).load(Ordering::Acquire)).address() == address {
            return Some(number);
        }
    }
    None
}

/// Ends the object at `address`.
pub fn end<S: Store>(store: &S, address: u64) {
    let Some(number) = find(store, address) else { return };
    let key = store.key(number);
    let old = Key(key.load(Ordering::Acquire));
    let is_mine =
        old.kind().is_some() && key.compare_exchange(old.0, old.ended().0, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if is_mine {
        store.clear(number, old.is_wide());
    }
}

#[cfg(all(test, not(loom)))]
#[path = "find_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "find_model.rs"]
mod model;
