//! The counts of plain mutexes, close together: one word for each 32 bytes of the program's memory where such are.
//!
//! An entry has a cache line of its own, and a slot of the index leads to it: with very many mutexes that is two
//! misses a call. A word is at a place that follows from the address alone, and eight of them share a line. Addresses
//! that are a window ([`ROWS`] times 4 KiB) apart share a word; a *row* says for each 4 KiB of the window whose words
//! these are, first come first served. Others do without.
//!
//! Like much of an entry, a word is written by the holder of the mutex alone. The entry's count is brought up to date
//! each time that a hold is timed; then the word is taken away, and put back afterwards if all is as usual: nobody has
//! ever waited, and other words on the same line are not other threads'. Their processors would fight for the line, also
//! if one of them only looked; so in place of the word a *mark* is left then, which keeps the others away in turn. So
//! whoever reads the word first and the entry then has the number.

use crate::{HAS_WORD, Key};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// 4 KiB of the program to a row.
pub const ROW_SHIFT: u32 = 12;
/// Rows of the window.
pub const ROWS: u64 = 1 << 16;
/// 32 bytes of the program to a word: no two mutexes are that close to each other.
pub const WORD_SHIFT: u32 = 5;
/// Words on a cache line.
pub const LINE: u64 = 8;
/// Words of a row.
pub const ROW_WORDS: u64 = 1 << (ROW_SHIFT - WORD_SHIFT);
/// Bytes of the area: the rows, and behind them the words.
pub const AREA: usize = (ROWS * 8 + ROWS * ROW_WORDS * 8) as usize;

/// The row that an address belongs to, in bytes from the area's beginning, and what it holds if its words are those of
/// the address.
pub const fn row(address: u64) -> (u64, u64) {
    let row = address >> ROW_SHIFT;
    ((row & (ROWS - 1)) * 8, row)
}

/// The word of an address, likewise.
pub const fn place(address: u64) -> u64 {
    ROWS * 8 + ((address >> WORD_SHIFT) & (ROWS * ROW_WORDS - 1)) * 8
}

/// One word: from the low end a bit that is set, the low 5 bits of the address, 22 bits for the id of the thread that
/// acquired the mutex last, the 10 bits of the key's generation, and the low 26 bits of how often it was acquired:
/// more than are ever missing from the entry's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

/// Bits that say whose word it is.
pub const TAG: u32 = 6;
/// Bits up to the generation: the kernel has no larger ids of threads than fit between.
pub const GENERATION: u32 = 28;
/// Bits up to the count, which is at the upper end so that it may overflow.
pub const COUNT: u32 = 38;

const fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

impl Word {
    /// The word of a mutex.
    #[inline(always)]
    pub const fn new(key: Key, tid: u32, count: u64) -> Self {
        let whose = Self::tag(key.address()) | key.generation() << GENERATION;
        Self(whose | low((tid as u64) << TAG, GENERATION) | count << COUNT)
    }

    const fn tag(address: u64) -> u64 {
        low(address << 1 | 1, TAG)
    }

    /// Whether it is that of a mutex, given that the row is.
    #[inline(always)]
    pub const fn is_of(self, key: Key) -> bool {
        low(self.0, TAG) == Self::tag(key.address()) && low(self.0, COUNT) >> GENERATION == key.generation()
    }

    /// The address of the mutex, given that of some byte among the same 32; `None` if it is nobody's.
    pub const fn address(self, near: u64) -> Option<u64> {
        let offset = low(self.0, TAG) >> 1;
        if self.0 & 1 != 0 { Some((near >> WORD_SHIFT << WORD_SHIFT) + offset) } else { None }
    }

    /// Who acquired the mutex last.
    pub const fn tid(self) -> u32 {
        (low(self.0, GENERATION) >> TAG) as u32
    }

    /// In place of the word of a mutex that a thread uses on a line with words of others.
    pub const fn mark(tid: u32) -> Self {
        Self(low((tid as u64) << TAG, GENERATION))
    }

    /// Whether a thread may write words on the same line: it is nobody's, or its own.
    pub const fn suits(self, tid: u32) -> bool {
        self.0 == 0 || self.tid() == tid
    }

    /// How many acquisitions the word has that the entry's count, read after it, has not.
    #[inline(always)]
    pub const fn ahead_of(self, entry: u64) -> u64 {
        // The difference of the low bits, with its sign: the entry may be the newer one.
        let ahead = (self.0 >> COUNT).wrapping_sub(entry) << COUNT;
        if (ahead as i64) < 0 { 0 } else { ahead >> COUNT }
    }
}

/// Brings the count and the last thread of a mutex up to date, and takes its word away: the count. By the holder.
#[inline(always)]
pub fn collect(word: &AtomicU64, key: Key, count: &AtomicU64, last: &AtomicU32) -> u64 {
    let counted = count.load(Ordering::Relaxed);
    let old = Word(word.load(Ordering::Relaxed));
    if !old.is_of(key) {
        return counted;
    }
    let counted = counted.wrapping_add(old.ahead_of(counted));
    last.store(old.tid(), Ordering::Relaxed);
    count.store(counted, Ordering::Release);
    // Last: who reads the word first, and finds none, misses nothing in the count.
    word.store(0, Ordering::Release);
    counted
}

/// Lets a mutex be counted by its word from now on. By the holder, after [`collect`].
#[inline(always)]
pub fn put(word: &AtomicU64, key: Key, count: &AtomicU64, last: &AtomicU32) {
    let tid = last.load(Ordering::Relaxed);
    let now = Word::new(key, tid, count.load(Ordering::Relaxed));
    last.store(tid | HAS_WORD, Ordering::Relaxed);
    word.store(now.0, Ordering::Release);
}

#[cfg(all(test, loom))]
mod model {
    extern crate std;
    use super::*;
    use crate::Kind;
    use loom::sync::Arc;
    use loom::thread;

    /// What a reader finds: how often a mutex was acquired. The word before the entry.
    fn read(word: &AtomicU64, key: Key, count: &AtomicU64) -> u64 {
        let word = Word(word.load(Ordering::Acquire));
        let counted = count.load(Ordering::Acquire);
        if word.is_of(key) { counted + word.ahead_of(counted) } else { counted }
    }

    /// Whenever a reader looks, it finds a number that was true between the beginning and the end of its look, and
    /// never a smaller one than before.
    #[test]
    fn a_reader_finds_what_was_true() {
        loom::model(|| {
            let key = Key::new(0x1000, Kind::Mutex);
            let mutex = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0)));
            let holder = {
                let mutex = mutex.clone();
                thread::spawn(move || {
                    let (word, count, last, truth) = &*mutex;
                    // Counted by the entry, then twice by the word, then by the entry again.
                    count.store(collect(word, key, count, last) + 1, Ordering::Release);
                    put(word, key, count, last);
                    truth.store(1, Ordering::Release);
                    for n in 2..4 {
                        let old = word.load(Ordering::Relaxed);
                        word.store(old.wrapping_add(1 << COUNT), Ordering::Release);
                        truth.store(n, Ordering::Release);
                    }
                    count.store(collect(word, key, count, last) + 1, Ordering::Release);
                    truth.store(4, Ordering::Release);
                })
            };
            let (word, count, _, truth) = &*mutex;
            let mut before = 0;
            for _ in 0..2 {
                let least = truth.load(Ordering::Acquire);
                let found = read(word, key, count);
                assert!(found >= least && found >= before && found <= 4, "{found} after {least} and {before}");
                before = found;
            }
            holder.join().unwrap();
            assert_eq!(read(word, key, count), 4);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_word_keeps_its_parts_apart() {
        let (address, tid) = (0x7fff_1234_5678, (1 << 22) - 1);
        let key = |address| Key::new(address, Kind::Mutex);
        let next = |key: Key| key.ended().reborn(Kind::Mutex);
        let word = Word::new(next(key(address)), tid, u64::MAX);
        assert_eq!((word.tid(), word.0 >> COUNT), (tid, (1 << 26) - 1));
        assert_eq!(word.address(address | 0x1f), Some(address));
        assert!(word.is_of(next(key(address))) && !word.is_of(next(key(address + 8))));
        assert!(!word.is_of(key(address)) && !word.is_of(next(next(key(address)))));
        assert!(!Word(0).is_of(key(0x1000)));
        let mark = Word::mark(tid);
        assert!((0..32).all(|low| !mark.is_of(key(0x1000 + low))) && mark.address(address).is_none());
        assert!(mark.suits(tid) && !mark.suits(1) && Word(0).suits(1) && word.suits(tid) && !word.suits(1));
        assert_eq!(Word(0).address(address), None);
    }

    #[test]
    fn what_a_word_is_ahead_of_its_entry() {
        let word = |count| Word::new(Key::new(0x1000, Kind::Mutex), 1, count);
        assert_eq!(word(170).ahead_of(100), 70);
        assert_eq!(word(100).ahead_of(100), 0);
        // The entry was brought up to date after the word had been read.
        assert_eq!(word(100).ahead_of(164), 0);
        // The entry's count has more bits than the word's.
        let large = (5 << 26) - 10;
        assert_eq!(word(large + 30).ahead_of(large), 30);
        assert_eq!(word(large).ahead_of(large + 30), 0);
    }

    #[test]
    fn places_of_neighbours() {
        assert_eq!(place(0x1020) - place(0x1000), 8);
        assert_eq!(place(0x1000), place(0x1000 + (ROWS << ROW_SHIFT)));
        let ((at, holds), (other_at, other)) = (row(0x1000), row(0x1000 + (ROWS << ROW_SHIFT)));
        assert!(at == other_at && holds != other && at < ROWS * 8);
        assert!(place(u64::MAX >> 16) + 8 <= AREA as u64);
    }
}
