//! The crate `parking_lot`: small locks, whose waiters stand in a table of the process.

mod table;

pub(super) use table::TablePointers;
#[cfg(feature = "internals")]
pub use table::parked_at;

use super::{
    Class, Content, Context, FutexOp, FutexWait, LockWord, Runtime, SeenWait, SetError, SetPlan, Spot, u64_at,
};
use crate::RemoteAddr;
use crate::elf::demangle;
use crate::model::{Detail, Evidence, Family, Preference, Side, SyncKind, SyncObject, SyncState};
use crate::proc::map_at;
use table::ParkedThread;

/// Of the word of a rwlock: what stands below the number of its readers.
const PARKED: u64 = 1;
const WRITER_PARKED: u64 = 2;
const UPGRADABLE: u64 = 4;
const WRITER: u64 = 8;
const ONE_READER: u64 = 16;
/// Of the byte of a once.
const ONCE_DONE: u64 = 1;
const ONCE_LOCKED: u64 = 4;
const ONCE_PARKED: u64 = 8;

/// Where a thread's key is, as seen from the word it sleeps on, where no table is found.
const KEY: u64 = 32;

pub(crate) struct ParkingLot;

impl Runtime for ParkingLot {
    fn families(&self) -> &'static [Family] {
        &[Family::ParkingLot]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let (Spot::Caller(name) | Spot::Frame(name, _)) = spot else { return None };
        if !name.contains("parking_lot") {
            return None;
        }
        let (parked, evidence) = parked(&seen.futex, context);
        let park = Class::new(SyncKind::Park, Family::ParkingLot, seen.futex.word, Evidence::Inferred);
        let Some(parked) = parked else { return Some(park) };
        let class = match kind_of(name) {
            // Whoever waits for a condition variable may have been moved to its mutex, in the same function.
            Some(SyncKind::Cond) | None => by_content(&parked, context),
            Some(kind) => Some(Class { evidence, ..class_of(kind, &parked) }),
        };
        Some(class.unwrap_or(park))
    }

    /// In a program without symbols: what the table says of the thread.
    fn by_numbers(&self, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let may_be = seen.is_from_nameless || seen.call.is_none() && !seen.past_libc;
        let is_parked = seen.futex.op == FutexOp::Wait && seen.futex.private && seen.futex.value == 1;
        if !may_be || !is_parked {
            return None;
        }
        by_content(&context.parking_lot_tables().parked(context.target, seen.futex.word)?, context)
    }

    /// A condition variable has the address of its mutex while threads wait for it.
    fn given_up(&self, class: &Class, _: &[u64], context: &Context<'_>) -> Option<RemoteAddr> {
        let mutex = context.target.read_u64(class.address).ok().filter(|_| class.kind == SyncKind::Cond)?;
        is_data(mutex, context).then_some(RemoteAddr(mutex))
    }

    fn bytes_of(&self, _: SyncKind, _: Family) -> usize {
        8
    }

    /// Its mutex is a byte: one bit for the holder, one for parked threads; its rwlock a word, with four bits below
    /// the readers.
    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u64_at(bytes, 0).unwrap_or(0);
        match class.kind {
            SyncKind::Mutex => {
                let state = if word & 1 != 0 { SyncState::Locked } else { SyncState::Unlocked };
                Content::plain(bytes, Some(1), state, Detail::Futex { value: (word & 0xff) as u32 })
            }
            SyncKind::Rwlock => {
                // A writer sets its bit as soon as no other writer has it, and then waits for the readers to end.
                let readers = u32::try_from(word / ONE_READER).unwrap_or(u32::MAX);
                let state = match (word & WRITER != 0, readers) {
                    (true, 0) => SyncState::WriteLocked,
                    (false, 0) => SyncState::Unlocked,
                    (_, _) => SyncState::ReadLocked,
                };
                let writer_queued = word & WRITER_PARKED != 0 || word & WRITER != 0 && readers != 0;
                // Whoever reads it reads again only by asking for that (`read_recursive`).
                let preference = Preference::WriterNonrecursive;
                Content::plain(bytes, Some(8), state, Detail::Rwlock { preference, readers, writer_queued })
            }
            SyncKind::Once => {
                let state = match (word & ONCE_DONE != 0, word & ONCE_LOCKED != 0) {
                    (true, _) => SyncState::Done,
                    (false, true) => SyncState::InProgress,
                    (false, false) => SyncState::New,
                };
                Content::plain(bytes, Some(1), state, Detail::Futex { value: (word & 0xff) as u32 })
            }
            _ => Content::plain(bytes, None, SyncState::Waiting, Detail::Futex { value: word as u32 }),
        }
    }

    fn is_part(&self, function: &str) -> bool {
        let function = demangle(function);
        ["parking_lot::", "parking_lot_core::", "lock_api::"].iter().any(|part| function.starts_with(part))
    }

    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        let (sizes, held): (&[u8], fn(u64) -> u64) = match kind {
            SyncKind::Once => (&[1], |word| word & ONCE_LOCKED),
            SyncKind::Rwlock => (&[8], |word| word & !7),
            _ => (&[1], |word| word & 1),
        };
        LockWord { sizes, held, has_queue: true, ..LockWord::default() }
    }

    fn type_in_rust(&self, name: &str) -> Option<(SyncKind, &'static [&'static str])> {
        let kind = match name {
            "RawMutex" => SyncKind::Mutex,
            "RawRwLock" => SyncKind::Rwlock,
            "Condvar" => SyncKind::Cond,
            "Once" => SyncKind::Once,
            _ => return None,
        };
        Some((kind, &["parking_lot::"]))
    }

    fn set_state(&self, _: &SyncObject, _: &[u8], _: i32) -> Result<SetPlan, SetError> {
        Err(SetError::NotCapable(
            "a parking_lot lock cannot be set: only the program can take its waiters from their queue",
        ))
    }
}

/// What the table says of a thread, and how sure that is.
fn parked(futex: &FutexWait, context: &Context<'_>) -> (Option<ParkedThread>, Evidence) {
    let parked = context.parking_lot_tables().parked(context.target, futex.word);
    if parked.is_some() {
        return (parked, Evidence::Derived);
    }
    let read = || {
        let key = context.target.read_u64(futex.word.checked_sub(KEY)?).ok()?;
        // What the key leads to has a byte or word that says that threads are parked.
        let word = context.target.read_u64(RemoteAddr(key & !1)).ok()?;
        (key != 0 && word & 3 != 0).then_some(ParkedThread { key, token: 0 })
    };
    (read(), Evidence::Inferred)
}

/// The kind of lock that `function` is about.
fn kind_of(function: &str) -> Option<SyncKind> {
    let kinds = [
        ("RawMutex", SyncKind::Mutex),
        ("ReentrantMutex", SyncKind::Mutex),
        ("RawRwLock", SyncKind::Rwlock),
        ("Condvar", SyncKind::Cond),
        ("Once", SyncKind::Once),
    ];
    kinds.iter().find(|(part, _)| function.contains(part)).map(|(_, kind)| *kind)
}

/// A lock of `kind` that a thread is parked for.
fn class_of(kind: SyncKind, parked: &ParkedThread) -> Class {
    let side = match parked.token {
        _ if kind != SyncKind::Rwlock => None,
        // Whoever may go on to write later reads until then, and waits for others of its sort and for writers.
        token if token & !UPGRADABLE == ONE_READER => Some(Side::Read),
        _ => Some(Side::Write),
    };
    // A writer that waits for readers is queued at the next address. Only a rwlock is always at an even one.
    let address = if kind == SyncKind::Rwlock { parked.key & !1 } else { parked.key };
    Class { side, ..Class::new(kind, Family::ParkingLot, RemoteAddr(address), Evidence::Inferred) }
}

/// What a thread is parked for, by what it told the others and by what is there.
fn by_content(parked: &ParkedThread, context: &Context<'_>) -> Option<Class> {
    if parked.token != 0 {
        return Some(class_of(SyncKind::Rwlock, parked));
    }
    let mut bytes = [0; 8];
    let got = context.target.read_up_to(RemoteAddr(parked.key), 8).ok()?;
    bytes.get_mut(..got.len())?.copy_from_slice(&got);
    let word = u64::from_le_bytes(bytes);
    let kind = match word & 0xff {
        _ if is_data(word, context) => SyncKind::Cond,
        byte if byte & !1 == WRITER_PARKED => SyncKind::Mutex,
        byte if byte == ONCE_LOCKED | ONCE_PARKED => SyncKind::Once,
        byte if byte & WRITER != 0 && byte & PARKED != 0 => SyncKind::Rwlock,
        _ => return None,
    };
    Some(class_of(kind, parked))
}

/// Whether `address` is one of data.
fn is_data(address: u64, context: &Context<'_>) -> bool {
    map_at(context.target.maps(), RemoteAddr(address)).is_some_and(|map| map.write && map.read)
}
