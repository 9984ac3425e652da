//! The table, as the agent writes it.

use crate::{clock, sys, words};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use table::{Entry, Extra, FoundEntry, Header, Key, Kind, RwlockMore, Store};

/// Found by its name ([`table::HEADER_SYMBOL`]) from outside.
#[unsafe(export_name = "threadglass_agent")]
pub static HEADER: Header = Header {
    magic: table::MAGIC,
    version: table::VERSION,
    header_size: size_of::<Header>() as u32,
    entry_size: size_of::<Entry>() as u32,
    extra_size: size_of::<Extra>() as u32,
    state: AtomicU32::new(table::state::NEW),
    mode: AtomicU32::new(table::mode::OFF),
    clock: AtomicU32::new(0),
    inline: AtomicU32::new(0),
    pid: AtomicU32::new(0),
    clock_seq: AtomicU32::new(0),
    start_ticks: AtomicU64::new(0),
    start_ns: AtomicU64::new(0),
    last_ticks: AtomicU64::new(0),
    last_ns: AtomicU64::new(0),
    enabled_at: AtomicU64::new(0),
    index: AtomicU64::new(0),
    index_slots: AtomicU64::new(0),
    entries: AtomicU64::new(0),
    units: AtomicU64::new(0),
    next_unit: AtomicU64::new(1),
    extras: AtomicU64::new(0),
    extra_room: AtomicU64::new(0),
    next_extra: AtomicU64::new(1),
    drops: AtomicU64::new(0),
    extra_drops: AtomicU64::new(0),
    threads_created: AtomicU64::new(0),
    is_on: AtomicU64::new(0),
    wanted: AtomicU32::new(table::mode::SAMPLED),
    controllers: [const { AtomicU32::new(0) }; table::CONTROLLERS],
    lease: AtomicU64::new(0),
    words: AtomicU64::new(0),
    word_rows: AtomicU64::new(0),
    stacks: AtomicU64::new(0),
    stack_room: AtomicU64::new(0),
    next_stack: AtomicU64::new(0),
};

// What every call needs, without the detour by the exported header. The table exists before a call is tracked.
static INDEX: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
static SLOTS: AtomicUsize = AtomicUsize::new(0);
/// The slots' pages, as [`table::find::first_of`] wants them.
static PAGES: AtomicUsize = AtomicUsize::new(0);
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
static EXTRAS: AtomicPtr<Extra> = AtomicPtr::new(ptr::null_mut());

/// Tells where the areas are. Before any call is tracked.
pub fn begin(index: (usize, usize), entries: (usize, usize), extras: (usize, usize)) {
    INDEX.store(ptr::with_exposed_provenance_mut(index.0), Relaxed);
    SLOTS.store(index.1, Relaxed);
    PAGES.store((index.1 - 1) & !(table::find::PAGE_SLOTS as usize - 1), Relaxed);
    ENTRIES.store(ptr::with_exposed_provenance_mut(entries.0), Relaxed);
    EXTRAS.store(ptr::with_exposed_provenance_mut(extras.0), Relaxed);
    let places = [
        (&HEADER.index, &HEADER.index_slots, index),
        (&HEADER.entries, &HEADER.units, entries),
        (&HEADER.extras, &HEADER.extra_room, extras),
    ];
    for (start, room, value) in places {
        start.store(value.0 as u64, Relaxed);
        room.store(value.1 as u64, Relaxed);
    }
}

/// Units on the first large page of the entries.
const FIRST_PAGE: u64 = (sys::HUGE / table::UNIT) as u64;

struct Table;

fn entry_at(number: u32) -> &'static Entry {
    // SAFETY: numbers in the index are of entries that were taken, so within the area, which is never unmapped.
    unsafe { &*ENTRIES.load(Relaxed).add(number as usize) }
}

impl Store for Table {
    fn slots(&self) -> u64 {
        SLOTS.load(Relaxed) as u64
    }
    fn slot(&self, at: u64) -> &AtomicU32 {
        // SAFETY: below the number of slots, as all of `table::probes`.
        unsafe { &*INDEX.load(Relaxed).add(at as usize) }
    }
    fn key(&self, entry: u32) -> &AtomicU64 {
        &entry_at(entry).key
    }
    fn take(&self, units: u32) -> Option<u32> {
        let room = HEADER.units.load(Relaxed);
        // Looked at first, so that a full table does not count on for ever.
        if HEADER.next_unit.load(Relaxed) >= room {
            return None;
        }
        let first = HEADER.next_unit.fetch_add(u64::from(units), Relaxed);
        if first < FIRST_PAGE && first + u64::from(units) >= FIRST_PAGE {
            sys::merge_pages(ENTRIES.load(Relaxed).addr());
        }
        (first + u64::from(units) <= room).then_some(first as u32)
    }
    fn clear(&self, entry: u32, wide: bool) {
        let entry_ref = entry_at(entry);
        words::forget(Key(entry_ref.key.load(Relaxed)).address());
        entry_ref.last.store(0, Relaxed);
        for word in &entry_ref.body {
            word.store(0, Relaxed);
        }
        if wide {
            let more = more(entry_ref);
            more.key.store(Key::CONTINUED.0, Relaxed);
            more.rd_sleep_time.store(0, Relaxed);
            more.wr_sleep_time.store(0, Relaxed);
            more.rd_sleep.store(0, Relaxed);
            more.wr_sleep.store(0, Relaxed);
        }
    }
}

/// The second unit of a rwlock's entry.
pub fn more(entry: &'static Entry) -> &'static RwlockMore {
    // SAFETY: entries with two units have both inside the area.
    unsafe { &*ptr::from_ref(entry).add(1).cast() }
}

/// The entry of an object; `None` when there is no room for it.
#[inline(always)]
pub fn entry(address: usize, kind: Kind) -> Option<&'static Entry> {
    match entry_at_once(address, kind) {
        Some(entry) => Some(entry),
        None => entry_slowly(address, kind).map(|(entry, _)| entry),
    }
}

/// The entry of an object, if it is where it is looked for first.
#[inline(always)]
pub fn entry_at_once(address: usize, kind: Kind) -> Option<&'static Entry> {
    let pages = PAGES.load(Relaxed) as u64;
    let number = Table.slot(table::find::first_of(address as u64, pages)).load(Acquire);
    // Entry 0 has key 0, which is no object's.
    let entry = entry_at(number);
    // Addresses of programs have no more bits than a key has room for.
    let wanted = Key((address as u64).wrapping_add(Key::new(0, kind).0));
    Key(entry.key.load(Acquire)).is_same(wanted).then_some(entry)
}

/// The entry of an object that has one.
pub fn known(address: usize, kind: Kind) -> Option<&'static Entry> {
    let entry = entry_at(table::find::find(&Table, address as u64)?);
    (Key(entry.key.load(Acquire)).kind() == Some(kind)).then_some(entry)
}

/// The same, made if there is none, and whether it is new.
#[cold]
#[inline(never)]
pub fn entry_slowly(address: usize, kind: Kind) -> Option<(&'static Entry, bool)> {
    if !Key::fits(address as u64) {
        return None;
    }
    match table::find_or_insert(&Table, address as u64, kind) {
        FoundEntry::Old(number) => Some((entry_at(number), false)),
        FoundEntry::New(number) => {
            clock::note(clock::now());
            Some((entry_at(number), true))
        }
        FoundEntry::Full => {
            HEADER.drops.fetch_add(1, Relaxed);
            None
        }
    }
}

/// A new object is at `address`, whatever was there.
#[cold]
pub fn renew(address: usize, kind: Kind) -> Option<&'static Entry> {
    end(address);
    entry_slowly(address, kind).map(|(entry, _)| entry)
}

/// The object at `address` is no more.
#[cold]
pub fn end(address: usize) {
    table::find::end(&Table, address as u64);
}

/// The extra of an entry that has one for its present object.
#[inline(always)]
pub fn extra(entry: &Entry) -> Option<&'static Extra> {
    match entry.extra.load(Relaxed) {
        0 => None,
        number => Some(extra_at(number)),
    }
}

/// Notes where the present holder of a lock that has an extra has called from.
#[inline(always)]
pub fn note_holder(entry: &Entry, site: usize) {
    if let Some(extra) = extra(entry) {
        extra.holder.store(site as u64, Relaxed);
    }
}

fn extra_at(number: u32) -> &'static Extra {
    // SAFETY: numbers in entries are of extras that were taken.
    unsafe { &*EXTRAS.load(Relaxed).add(number as usize) }
}

/// The same, made if there is none. One that an object before it has left is emptied.
#[cold]
pub fn extra_or_new(entry: &Entry) -> Option<&'static Extra> {
    let key = entry.key.load(Relaxed);
    let extra = match extra(entry) {
        Some(extra) => extra,
        None => {
            let room = HEADER.extra_room.load(Relaxed);
            let is_full = HEADER.next_extra.load(Relaxed) >= room;
            let number = if is_full { room } else { HEADER.next_extra.fetch_add(1, Relaxed) };
            if number >= room {
                HEADER.extra_drops.fetch_add(1, Relaxed);
                return None;
            }
            match entry.extra.compare_exchange(0, number as u32, AcqRel, Acquire) {
                Ok(_) => extra_at(number as u32),
                Err(other) => extra_at(other),
            }
        }
    };
    let owner = extra.owner.load(Relaxed);
    if owner != key && extra.owner.compare_exchange(owner, key, AcqRel, Relaxed).is_ok() && owner != 0 {
        extra.holder.store(0, Relaxed);
        for bucket in &extra.histogram {
            bucket.store(0, Relaxed);
        }
        for site in &extra.sites {
            site.waiter.store(0, Relaxed);
            site.holder.store(0, Relaxed);
            site.time.store(0, Relaxed);
        }
        extra.unseen.store(0, Relaxed);
        extra.seen.store(0, Relaxed);
    }
    Some(extra)
}
