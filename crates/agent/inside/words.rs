//! The words of plain mutexes (`table::words`): put there, brought together with the entries, taken away. All of this
//! by the holder of the mutex, but for rows, which are claimed by whoever comes first.

use crate::memory::{self, HEADER};
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use table::words::{self, Word};
use table::{Entry, HAS_WORD, Key, Kind};

/// Address of the area, if there is one: then before a call is tracked.
pub static AREA: AtomicUsize = AtomicUsize::new(0);

/// Rows that may be claimed however few objects there are: a mebibyte of words.
const FEW: u64 = 1 << 10;
/// Beyond: objects to a row, so that the words do not cost more than 32 bytes each.
const OBJECTS: u64 = 32;

pub fn begin(area: usize) {
    AREA.store(area, Relaxed);
    HEADER.words.store(area as u64, Relaxed);
}

pub fn has_area() -> bool {
    AREA.load(Relaxed) != 0
}

#[inline(always)]
fn at(offset: u64) -> &'static AtomicU64 {
    // SAFETY: offsets of `table::words` are within the area, which is never unmapped.
    unsafe { &*ptr::with_exposed_provenance(AREA.load(Relaxed) + offset as usize) }
}

/// The word at the place of an address, if its row is that of the address.
#[inline(always)]
fn find(address: u64) -> Option<&'static AtomicU64> {
    let (row, holds) = words::row(address);
    (at(row).load(Acquire) == holds).then(|| at(words::place(address)))
}

/// Whether a word may know more of a mutex than its entry does.
#[inline(always)]
pub fn has_one(entry: &Entry) -> bool {
    entry.last.load(Relaxed) & HAS_WORD != 0
}

/// How often the mutex of an entry was acquired. The word is out of use then.
#[inline(always)]
pub fn collect(entry: &Entry) -> u64 {
    let count = &entry.mutex().lock;
    if has_one(entry) {
        let key = Key(entry.key.load(Relaxed));
        if let Some(word) = find(key.address()) {
            return words::collect(word, key, count, &entry.last);
        }
    }
    count.load(Relaxed)
}

/// From now on the mutex of an entry is counted by its word, if it can have one.
#[cold]
#[inline(never)]
pub fn put(entry: &Entry) {
    let (key, tid) = (Key(entry.key.load(Relaxed)), entry.last.load(Relaxed));
    let Some(word) = find(key.address()).or_else(|| claim(key.address())) else { return };
    // Another mutex was that close, and is gone without our knowing: two that are there cannot overlap.
    if let Some(other) = Word(word.load(Relaxed)).address(key.address())
        && let Some(entry) = memory::known(other as usize, Kind::Mutex)
    {
        collect(entry);
    }
    let line = words::place(key.address()) & !(8 * words::LINE - 1);
    let others = (0..words::LINE).map(|number| at(line + 8 * number)).filter(|other| !ptr::eq(*other, word));
    if { others }.all(|other| Word(other.load(Relaxed)).suits(tid)) {
        words::put(word, key, &entry.mutex().lock, &entry.last);
    } else if word.load(Relaxed) != Word::mark(tid).0 {
        word.store(Word::mark(tid).0, Relaxed);
    }
}

/// Takes the row of an address, if it is free and there may be one more.
fn claim(address: u64) -> Option<&'static AtomicU64> {
    let (row, holds) = words::row(address);
    let (used, units) = (HEADER.word_rows.load(Relaxed), HEADER.next_unit.load(Relaxed));
    if used >= FEW + units / OBJECTS {
        return None;
    }
    match at(row).compare_exchange(0, holds, AcqRel, Acquire) {
        Ok(_) => {
            HEADER.word_rows.fetch_add(1, Relaxed);
        }
        Err(other) if other != holds => return None,
        Err(_) => {}
    }
    Some(at(words::place(address)))
}

/// The object at `address` is no more.
pub fn forget(address: u64) {
    if has_area()
        && let Some(word) = find(address)
        && Word(word.load(Relaxed)).address(address).is_none_or(|other| other == address)
    {
        word.store(0, Release);
    }
}
