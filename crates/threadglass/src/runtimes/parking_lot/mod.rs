//! The crate `parking_lot`: small locks, whose waiters stand in a table of the process.

use super::{Class, Content, Context, FutexWait, LockWord, Runtime, SeenWait, SetError, SetPlan, Spot, u64_at};
use crate::RemoteAddr;
use crate::model::{Detail, Evidence, Family, Preference, Side, SyncKind, SyncObject, SyncState};

/// Where it keeps what a thread is parked for, as seen from the word it is parked on.
const KEYS: [i64; 2] = [8, -32];

pub(crate) struct ParkingLot;

impl Runtime for ParkingLot {
    fn families(&self) -> &'static [Family] {
        &[Family::ParkingLot]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let (Spot::Caller(name) | Spot::Frame(name, _)) = spot else { return None };
        let (kind, side) = by_name(name)?;
        let address = queued_for(&seen.futex, context);
        let kind = if address.is_some() { kind } else { SyncKind::Park };
        let address = address.unwrap_or(seen.futex.word);
        Some(Class { side, ..Class::new(kind, Family::ParkingLot, address, Evidence::Inferred) })
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
                let readers = (word >> 4) as u32;
                let (state, readers) = match (word & 8 != 0, readers) {
                    (true, _) => (SyncState::WriteLocked, 0),
                    (false, 0) => (SyncState::Unlocked, 0),
                    (false, _) => (SyncState::ReadLocked, readers),
                };
                let detail = Detail::Rwlock { preference: Preference::Writer, readers, writer_queued: word & 2 != 0 };
                Content::plain(bytes, Some(8), state, detail)
            }
            _ => Content::plain(bytes, None, SyncState::Waiting, Detail::Futex { value: word as u32 }),
        }
    }

    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        let (sizes, held): (&[u8], fn(u64) -> u64) = match kind {
            SyncKind::Mutex => (&[1], |word| word & 1),
            SyncKind::Rwlock => (&[8], |word| word & !7),
            _ => (&[8], |word| word & 1),
        };
        LockWord { sizes, held, ..LockWord::default() }
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

/// Whether `function` is one of its own, and which lock it is for.
fn by_name(function: &str) -> Option<(SyncKind, Option<Side>)> {
    let has = |part: &str| function.contains(part);
    if !has("parking_lot") {
        return None;
    }
    let kinds = [
        ("RawMutex", SyncKind::Mutex),
        ("ReentrantMutex", SyncKind::Mutex),
        ("RawRwLock", SyncKind::Rwlock),
        ("Condvar", SyncKind::Cond),
        ("condvar", SyncKind::Cond),
        ("Once", SyncKind::Once),
    ];
    let kind = kinds.iter().find(|(part, _)| has(part)).map_or(SyncKind::Park, |(_, kind)| *kind);
    let side = if has("shared") { Side::Read } else { Side::Write };
    Some((kind, (kind == SyncKind::Rwlock).then_some(side)))
}

/// The lock that a thread is queued for.
fn queued_for(futex: &FutexWait, context: &Context<'_>) -> Option<RemoteAddr> {
    KEYS.iter().find_map(|offset| {
        let key = context.target.read_u64(RemoteAddr(futex.word.0.wrapping_add_signed(*offset))).ok()?;
        // Writers that wait for readers are queued at the next address.
        let lock = RemoteAddr(key & !1);
        // What the key leads to has a byte or word that says that threads are parked.
        let word = context.target.read_u64(lock).ok()?;
        (key != 0 && word & 3 != 0).then_some(lock)
    })
}
