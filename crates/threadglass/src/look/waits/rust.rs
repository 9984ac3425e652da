//! Waits of Rust's standard library and of `parking_lot`.
//!
//! These have no fixed layout. Mutex, RwLock and Condvar have been the same since Rust 1.62, when they
//! became words for futex(2); Once since 1.67, its numbers here are those since 1.83 (checked up to 1.95).

use super::classify::Class;
use super::futex::{FutexOp, FutexWait};
use crate::RemoteAddr;
use crate::model::{Detail, Evidence, Family, Preference, Side, SyncKind, SyncState};

/// Readers are counted below these bits; all of them set is a writer.
const READER_MASK: u32 = (1 << 30) - 1;
const READERS_WAIT: u32 = 1 << 30;
const WRITERS_WAIT: u32 = 1 << 31;
/// The value of a thread's word while it is parked.
const PARKED: u32 = u32::MAX;

/// By the demangled name of the function that made the system call.
pub(super) fn by_name(function: &str, wait: &FutexWait) -> Option<Class> {
    let class = |kind, offset: u64, side| {
        Some(Class {
            kind,
            family: Family::RustStd,
            address: wait.word.checked_sub(offset)?,
            side,
            evidence: Evidence::Derived,
        })
    };
    let has = |part: &str| function.contains(part);
    if !has("std::") {
        return None;
    }
    if has("futex::Mutex") || has("futex_mutex::Mutex") {
        class(SyncKind::Mutex, 0, None)
    } else if has("futex::RwLock") || has("futex_rwlock::RwLock") {
        match (has("read_contended"), has("write_contended")) {
            (true, false) => class(SyncKind::Rwlock, 0, Some(Side::Read)),
            // Writers wait on a word of their own, behind the state.
            (false, true) => class(SyncKind::Rwlock, 4, Some(Side::Write)),
            _ => None,
        }
    } else if has("futex::Condvar") || has("futex_condvar::Condvar") || has("sync::condvar") || has("barrier::Barrier")
    {
        class(SyncKind::Cond, 0, None)
    } else if has("futex::Once") || has("futex_once::Once") {
        class(SyncKind::Once, 0, None)
    } else if has("thread_park") || has("::park") || has("thread::Thread>::park") {
        class(SyncKind::Park, 0, None)
    } else {
        None
    }
}

/// By the numbers of a wait made through `syscall` by a program without symbols. Rust's library waits with
/// a bit set, privately, and without the wall clock; few others do.
pub(super) fn by_numbers(wait: &FutexWait) -> Option<Class> {
    if wait.op != FutexOp::WaitBitset || !wait.private || wait.realtime {
        return None;
    }
    let (kind, side) = match wait.value {
        2 => (SyncKind::Mutex, None),
        PARKED => (SyncKind::Park, None),
        5 => (SyncKind::Once, None),
        value if value & READERS_WAIT != 0 && value & READER_MASK != 0 => (SyncKind::Rwlock, Some(Side::Read)),
        _ => return None,
    };
    Some(Class { kind, family: Family::RustStd, address: wait.word, side, evidence: Evidence::Inferred })
}

/// What the word or words of an object say: size, state and detail.
pub(super) fn decode(kind: SyncKind, word: u32) -> (u64, SyncState, Detail) {
    match kind {
        SyncKind::Mutex => {
            let state = match word {
                0 => SyncState::Unlocked,
                1 | 2 => SyncState::Locked,
                _ => SyncState::Unknown,
            };
            (4, state, Detail::Futex { value: word })
        }
        SyncKind::Rwlock => {
            let readers = word & READER_MASK;
            let (state, readers) = match readers {
                0 => (SyncState::Unlocked, 0),
                READER_MASK => (SyncState::WriteLocked, 0),
                readers => (SyncState::ReadLocked, readers),
            };
            let detail = Detail::Rwlock {
                // A reader that finds a writer waiting queues behind it, whoever it is.
                preference: Preference::WriterNonrecursive,
                readers,
                writer_queued: word & WRITERS_WAIT != 0,
            };
            (8, state, detail)
        }
        SyncKind::Once => {
            let state = match word & 3 {
                0 => SyncState::Done,
                1 => SyncState::InProgress,
                _ => SyncState::New,
            };
            (4, state, Detail::Futex { value: word })
        }
        SyncKind::Cond => (4, SyncState::Waiting, Detail::Futex { value: word }),
        SyncKind::Park => (4, SyncState::Waiting, Detail::Futex { value: word }),
        _ => (4, SyncState::Unknown, Detail::Futex { value: word }),
    }
}

/// Whether `function` is one of `parking_lot`'s, and which lock it is for.
pub(super) fn parking_lot(function: &str) -> Option<(SyncKind, Option<Side>)> {
    let has = |part: &str| function.contains(part);
    if !has("parking_lot") {
        return None;
    }
    Some(if has("RawMutex") || has("ReentrantMutex") {
        (SyncKind::Mutex, None)
    } else if has("RawRwLock") && has("shared") {
        (SyncKind::Rwlock, Some(Side::Read))
    } else if has("RawRwLock") {
        (SyncKind::Rwlock, Some(Side::Write))
    } else if has("Condvar") || has("condvar") {
        (SyncKind::Cond, None)
    } else if has("Once") {
        (SyncKind::Once, None)
    } else {
        (SyncKind::Park, None)
    })
}

/// Where `parking_lot` keeps what a thread is parked for, as seen from the word it is parked on.
pub(super) const PARKING_LOT_KEYS: [i64; 2] = [8, -32];

/// A lock's address, from such a key: writers that wait for readers are queued at the next one.
pub(super) fn parking_lot_lock(key: u64) -> RemoteAddr {
    RemoteAddr(key & !1)
}

/// What an object of `parking_lot` says. Its mutex is a byte: one bit for the holder, one for parked threads;
/// its rwlock a word, with four bits below the readers.
pub(super) fn decode_parking_lot(kind: SyncKind, bytes: &[u8]) -> (Option<u64>, SyncState, Detail) {
    let word = bytes.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    match kind {
        SyncKind::Mutex => {
            let state = if word & 1 != 0 { SyncState::Locked } else { SyncState::Unlocked };
            (Some(1), state, Detail::Futex { value: (word & 0xff) as u32 })
        }
        SyncKind::Rwlock => {
            let readers = (word >> 4) as u32;
            let state = match (word & 8 != 0, readers) {
                (true, _) => SyncState::WriteLocked,
                (false, 0) => SyncState::Unlocked,
                (false, _) => SyncState::ReadLocked,
            };
            let readers = if state == SyncState::ReadLocked { readers } else { 0 };
            let detail = Detail::Rwlock { preference: Preference::Writer, readers, writer_queued: word & 2 != 0 };
            (Some(8), state, detail)
        }
        _ => (None, SyncState::Waiting, Detail::Futex { value: word as u32 }),
    }
}
