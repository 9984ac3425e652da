//! Rust's standard library.
//!
//! Its locks have no fixed layout. Mutex, RwLock and Condvar have been the same since Rust 1.62, when they
//! became words for futex(2); Once since 1.67, its numbers here are those since 1.83 (checked up to 1.95).

mod channels;
mod recipe;

use super::{
    Class, Content, Context, FutexOp, FutexWait, LockWord, Runtime, SeenWait, SetError, SetPlan, Spot, WaitWords,
    u32_at,
};
use crate::RemoteAddr;
use crate::elf::demangle;
use crate::model::{Detail, Evidence, Family, Preference, Side, SyncKind, SyncObject, SyncState};

/// Readers are counted below these bits; all of them set is a writer.
const READER_MASK: u32 = (1 << 30) - 1;
const READERS_WAIT: u32 = 1 << 30;
const WRITERS_WAIT: u32 = 1 << 31;
/// The value of a thread's word while it is parked.
const PARKED: u32 = u32::MAX;

pub(crate) struct RustStd;

impl Runtime for RustStd {
    fn families(&self) -> &'static [Family] {
        &[Family::RustStd]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, _: &Context<'_>) -> Option<Class> {
        match spot {
            Spot::Caller(name) | Spot::Frame(name, _) => by_name(name, &seen.futex),
            Spot::Entry(..) | Spot::Outer { .. } => None,
        }
    }

    /// In a program that has no C library beside it, or calls `syscall` from a function without a name.
    fn by_numbers(&self, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let may_be = seen.is_from_nameless || seen.call.is_none() && !seen.past_libc;
        let before = |word: RemoteAddr| context.target.read_u32(word.checked_sub(4)?).ok();
        if may_be { by_numbers(&seen.futex, &before) } else { None }
    }

    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u32_at(bytes, 0).unwrap_or(0);
        if class.kind == SyncKind::Rwlock {
            let (state, readers) = match word & READER_MASK {
                0 => (SyncState::Unlocked, 0),
                READER_MASK => (SyncState::WriteLocked, 0),
                readers => (SyncState::ReadLocked, readers),
            };
            // A reader that finds a writer waiting queues behind it, whoever it is.
            let preference = Preference::WriterNonrecursive;
            let detail = Detail::Rwlock { preference, readers, writer_queued: word & WRITERS_WAIT != 0 };
            return Content::plain(bytes, Some(8), state, detail);
        }
        let state = match (class.kind, word) {
            (SyncKind::Mutex, 0) => SyncState::Unlocked,
            (SyncKind::Mutex, 1 | 2) => SyncState::Locked,
            (SyncKind::Once, word) if word & 3 == 0 => SyncState::Done,
            (SyncKind::Once, word) if word & 3 == 1 => SyncState::InProgress,
            (SyncKind::Once, _) => SyncState::New,
            (SyncKind::Cond | SyncKind::Park, _) => SyncState::Waiting,
            _ => SyncState::Unknown,
        };
        Content::plain(bytes, Some(4), state, Detail::Futex { value: word })
    }

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        channels::waits_in(name)
    }

    fn awaits_work(&self, name: &str) -> bool {
        channels::awaits_work(name)
    }

    fn is_part(&self, function: &str) -> bool {
        demangle(function).starts_with("std::")
    }

    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        let word = LockWord { sizes: &[4], ..LockWord::default() };
        match kind {
            SyncKind::Rwlock => LockWord { held: |word| word & u64::from(READER_MASK), ..word },
            _ => word,
        }
    }

    fn type_in_rust(&self, name: &str) -> Option<(SyncKind, &'static [&'static str])> {
        // Where the library keeps the types that have the futex, since 1.62.
        const LOCKS: &[&str] =
            &["std::sys::sync::", "std::sys::unix::locks::", "std::sys::pal::unix::", "std::sys_common::"];
        const OTHERS: &[&str] = &["std::sys::", "std::sys_common::"];
        Some(match name {
            "Mutex" => (SyncKind::Mutex, LOCKS),
            "RwLock" => (SyncKind::Rwlock, LOCKS),
            "Condvar" => (SyncKind::Cond, OTHERS),
            "Once" => (SyncKind::Once, OTHERS),
            _ => return None,
        })
    }

    fn set_state(&self, object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
        match object.kind {
            SyncKind::Mutex => recipe::plan(object, bytes, value),
            SyncKind::Rwlock => {
                Err(SetError::NotCapable("a Rust RwLock cannot be set: only the program can wake its waiting writers"))
            }
            kind => Err(SetError::no_state(kind)),
        }
    }
}

/// By the demangled name of the function that made the system call.
fn by_name(function: &str, wait: &FutexWait) -> Option<Class> {
    let has = |part: &str| function.contains(part);
    if !has("std::") {
        return None;
    }
    let (kind, offset, side) = if has("futex::Mutex") || has("futex_mutex::Mutex") {
        (SyncKind::Mutex, 0, None)
    } else if has("futex::RwLock") || has("futex_rwlock::RwLock") {
        match (has("read_contended"), has("write_contended")) {
            (true, false) => (SyncKind::Rwlock, 0, Some(Side::Read)),
            // Writers wait on a word of their own, behind the state.
            (false, true) => (SyncKind::Rwlock, 4, Some(Side::Write)),
            _ => return None,
        }
    } else if has("futex::Condvar") || has("futex_condvar::Condvar") || has("sync::condvar") || has("barrier::Barrier")
    {
        (SyncKind::Cond, 0, None)
    } else if has("futex::Once") || has("futex_once::Once") {
        (SyncKind::Once, 0, None)
    } else if has("thread_park") || has("::park") {
        (SyncKind::Park, 0, None)
    } else {
        return None;
    };
    let address = wait.word.checked_sub(offset)?;
    Some(Class { side, ..Class::new(kind, Family::RustStd, address, Evidence::Derived) })
}

/// By the numbers of a wait made through `syscall` by a program without symbols. Rust's library waits with
/// a bit set, privately, and without the wall clock; few others do.
fn by_numbers(wait: &FutexWait, before: &dyn Fn(RemoteAddr) -> Option<u32>) -> Option<Class> {
    if wait.op != FutexOp::WaitBitset || !wait.private || wait.realtime {
        return None;
    }
    // Writers wait on a word that only counts; the word before it tells of them.
    if before(wait.word).is_some_and(keeps_writers_waiting) {
        let (side, evidence) = (Some(Side::Write), Evidence::Inferred);
        let address = wait.word.checked_sub(4)?;
        return Some(Class { kind: SyncKind::Rwlock, family: Family::RustStd, address, side, evidence });
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

/// Whether a word can only be that of an `RwLock` for which writers wait: it is written, or read by no more threads than there
/// can be.
fn keeps_writers_waiting(state: u32) -> bool {
    const MOST_READERS: u32 = 1 << 16;
    let readers = state & READER_MASK;
    // All bits are set of a small negative number, too.
    let is_held = (1..MOST_READERS).contains(&readers) || readers == READER_MASK && state != u32::MAX;
    state & WRITERS_WAIT != 0 && is_held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_known_by_the_word_before_theirs() {
        let wait = FutexWait {
            word: RemoteAddr(0x5004),
            op: FutexOp::WaitBitset,
            private: true,
            realtime: false,
            value: 2,
            timed: false,
            restarted: false,
        };
        let class = |before: u32| by_numbers(&wait, &|_| Some(before)).map(|class| (class.kind, class.address.0));
        assert_eq!(class(WRITERS_WAIT | 3), Some((SyncKind::Rwlock, 0x5000)), "three read it");
        assert_eq!(class(WRITERS_WAIT | READER_MASK), Some((SyncKind::Rwlock, 0x5000)), "it is written");
        for other in [0, 1, 2, WRITERS_WAIT, READERS_WAIT | 3, u32::MAX, (-5_i32) as u32, (-1.5_f32).to_bits()] {
            assert_eq!(class(other), Some((SyncKind::Mutex, 0x5004)), "{other:#x}");
        }
    }
}
