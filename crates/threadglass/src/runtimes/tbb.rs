//! oneTBB: locks of one byte or word in the program. Whoever waits for one sleeps on a word of its own, in a node on its
//! stack that says for which lock.

use super::{Class, Content, Context, LockWord, Runtime, SeenWait, Spot, WaitWords, u64_at};
use crate::RemoteAddr;
use crate::model::{Detail, Evidence, Family, Preference, Side, SyncKind, SyncState};

/// Of a node, before the word that its thread sleeps on: the table of its functions, the lock, and for what it is wanted.
const TABLE: u64 = 48;
const LOCK: u64 = 24;
const NODE: usize = 48;
/// Wanted for reading.
const TO_READ: u64 = 1;

/// Of the word of a rwlock.
const WRITER: u64 = 1;
const PENDING: u64 = 2;
const READERS: u32 = 2;

const LIBRARY: &str = "libtbb.so";
const INSIDE: &str = "tbb::detail::r1::";
const WAIT: &str = "tbb::detail::r1::wait_on_address(";

pub(crate) struct Tbb;

impl Runtime for Tbb {
    fn families(&self) -> &'static [Family] {
        &[Family::Tbb]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let (Spot::Caller(function) | Spot::Outer { function, .. }) = spot else { return None };
        if function.starts_with(WAIT) {
            return lock_of(seen.futex.word, context);
        }
        // Whoever waits for an element of a queue, or for a task, sleeps on a word of its own, which looks like a lock.
        let waits = Class::new(SyncKind::Park, Family::Tbb, seen.futex.word, Evidence::Inferred);
        function.starts_with(INSIDE).then_some(waits)
    }

    /// Workers without work sleep in functions without names, on a word that is no lock.
    fn by_numbers(&self, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let back = RemoteAddr(*seen.words.first().filter(|_| seen.is_from_nameless)?);
        let idle = Class::new(SyncKind::Park, Family::Tbb, seen.futex.word, Evidence::Inferred);
        is_in_library(back, context).then_some(idle)
    }

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        let method = name.strip_prefix("tbb::detail::")?;
        Some(match () {
            () if method.starts_with("r1::wait_bounded_queue_monitor") => {
                WaitWords::Named("for a concurrent_bounded_queue (TBB)")
            }
            () if method.starts_with("r1::wait(") || method.starts_with("r1::execute_and_wait") => {
                WaitWords::Named("for the end of tasks (TBB)")
            }
            () if method.starts_with("r1::wait_on_address") => WaitWords::Part,
            () => return None,
        })
    }

    fn bytes_of(&self, kind: SyncKind, _: Family) -> usize {
        if kind == SyncKind::Park { 4 } else { 8 }
    }

    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u64_at(bytes, 0).unwrap_or(0);
        match class.kind {
            SyncKind::Rwlock => {
                let readers = (word >> READERS) as u32;
                let state = match (word & WRITER != 0, readers) {
                    (true, _) => SyncState::WriteLocked,
                    (false, 0) => SyncState::Unlocked,
                    (false, _) => SyncState::ReadLocked,
                };
                let (preference, writer_queued) = (Preference::Writer, word & PENDING != 0);
                Content::plain(bytes, Some(8), state, Detail::Rwlock { preference, readers, writer_queued })
            }
            SyncKind::Mutex => {
                let state = if word & 0xff == 0 { SyncState::Unlocked } else { SyncState::Locked };
                Content::plain(bytes, Some(1), state, Detail::Futex { value: (word & 0xff) as u32 })
            }
            _ => Content::plain(bytes, Some(4), SyncState::Unknown, Detail::None {}),
        }
    }

    /// Programs take and release them in line.
    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        match kind {
            SyncKind::Rwlock => LockWord {
                sizes: &[8],
                held: |word| (word >> READERS) + (word & WRITER),
                added: |by| by >> READERS,
                ..LockWord::default()
            },
            _ => LockWord { sizes: &[1], ..LockWord::default() },
        }
    }
}

/// The lock that the thread waits for that sleeps on `word`.
fn lock_of(word: RemoteAddr, context: &Context<'_>) -> Option<Class> {
    let node = context.target.read_vec(word.checked_sub(TABLE)?, NODE).ok()?;
    let at = |offset: u64| u64_at(&node, (TABLE - offset) as usize);
    if !is_in_library(RemoteAddr(at(TABLE)?), context) {
        return None;
    }
    let (address, wanted) = (RemoteAddr(at(LOCK)?), at(LOCK - 8)?);
    let value = u64::from(context.target.read_vec(address, 1).ok()?[0]);
    // The byte of a mutex is 0 or 1. Who waits for a rwlock is a reader, or has said that a writer waits.
    let class = Class::new(SyncKind::Mutex, Family::Tbb, address, Evidence::Inferred);
    let side = if wanted == TO_READ { Side::Read } else { Side::Write };
    let is_rwlock = wanted == TO_READ || value > WRITER;
    Some(if is_rwlock { Class { kind: SyncKind::Rwlock, side: Some(side), ..class } } else { class })
}

fn is_in_library(address: RemoteAddr, context: &Context<'_>) -> bool {
    context.target.module_at(address).is_some_and(|module| module.name().starts_with(LIBRARY))
}
