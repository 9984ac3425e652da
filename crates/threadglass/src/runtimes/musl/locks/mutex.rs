//! `pthread_mutex_t`, and C11's `mtx_t`.

use super::MAX_WAITERS;
use crate::memory::Memory;
use crate::model::{Detail, MutexProtocol, MutexType, SyncState};
use crate::runtimes::{Content, Owner, u32_at, u64_at};
use crate::{InnerTid, RemoteAddr};

pub(super) const SIZE: usize = 40;

/// No kernel gives out higher ids.
pub(crate) const MAX_TID: u32 = 1 << 22;

const ROBUST: u32 = 4;
const INHERIT: u32 = 8;
const SHARED: u32 = 128;
/// What a mutex of the usual type holds while it is locked.
const LOCKED: u32 = 16;
const WAITERS: u32 = 1 << 31;
const OWNER_DIED: u32 = 1 << 30;
const OWNER: u32 = OWNER_DIED - 1;
/// In place of an owner: given up for good.
const NOT_RECOVERABLE: u32 = OWNER;

/// The fields of a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mutex {
    kind: u32,
    pub(crate) lock: u32,
    /// Threads that wait; -1 for one that can never be had again.
    waiters: u32,
    count: u32,
    /// Where the pointer to this mutex is, in the list of those that the owner has.
    prev: u64,
}

impl Mutex {
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
            lock: u32_at(bytes, 4)?,
            waiters: u32_at(bytes, 8)?,
            count: u32_at(bytes, 20)?,
            prev: u64_at(bytes, 24)?,
        })
    }

    /// What lies at `addr`, if that can be read.
    pub(crate) fn read(memory: &dyn Memory, addr: RemoteAddr) -> Option<Self> {
        Self::new(&memory.read_vec(addr, SIZE).ok()?)
    }

    /// Whether it records its owner: all but those of the usual type do.
    pub(crate) fn records_owner(&self) -> bool {
        self.kind & 15 != 0
    }

    pub(crate) fn inherits(&self) -> bool {
        self.kind & INHERIT != 0
    }

    /// Whether it says that it is in the list of an owner.
    pub(crate) fn is_in_list(&self) -> bool {
        self.records_owner() && self.prev != 0
    }

    /// Whether the list of its owner leads to it, where it is the mutex at `addr`.
    pub(crate) fn is_listed(&self, memory: &dyn Memory, addr: RemoteAddr) -> bool {
        self.prev != 0 && memory.read_u64(RemoteAddr(self.prev)).is_ok_and(|next| next == addr.0.wrapping_add(32))
    }

    pub(crate) fn state(&self) -> SyncState {
        let (owner, died) = (self.lock & OWNER, self.lock & OWNER_DIED != 0);
        match (self.records_owner(), owner, died) {
            (false, 0, _) => SyncState::Unlocked,
            (false, ..) => SyncState::Locked,
            (true, NOT_RECOVERABLE, _) => SyncState::NotRecoverable,
            (true, 0, true) if self.kind & ROBUST != 0 => SyncState::OwnerDied,
            // Its owner ended, and nobody can have it any more.
            (true, 0, true) => SyncState::Locked,
            (true, 0, false) => SyncState::Unlocked,
            (true, _, true) if self.kind & ROBUST != 0 => SyncState::Inconsistent,
            (true, ..) => SyncState::Locked,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        match (self.state(), self.lock & OWNER) {
            (SyncState::Locked | SyncState::Inconsistent, _) if !self.records_owner() => Owner::None,
            (SyncState::Locked, 0) => Owner::Ended,
            (SyncState::Locked | SyncState::Inconsistent, tid) => Owner::Tid(InnerTid(tid as i32)),
            _ => Owner::None,
        }
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.lock & WAITERS != 0 || self.waiters != 0
    }

    pub(crate) fn is_plausible(&self) -> bool {
        let known = self.kind & !(3 | ROBUST | INHERIT | SHARED) == 0 && self.kind & 3 != 3;
        let lock = match self.records_owner() {
            true => self.lock & OWNER <= MAX_TID || self.lock & OWNER == NOT_RECOVERABLE,
            false => matches!(self.lock & !WAITERS, 0 | LOCKED),
        };
        known && lock && (self.waiters < MAX_WAITERS || self.waiters == u32::MAX && self.inherits())
    }

    pub(crate) fn content(&self, bytes: &[u8]) -> Content {
        let kind = match self.kind & 3 {
            0 => MutexType::Normal,
            1 => MutexType::Recursive,
            _ => MutexType::Errorcheck,
        };
        let is_counted = kind == MutexType::Recursive && self.state().is_held();
        let detail = Detail::Mutex {
            kind,
            robust: self.kind & ROBUST != 0,
            protocol: if self.inherits() { MutexProtocol::Inherit } else { MutexProtocol::None },
            recursion: if is_counted { self.count.min(i32::MAX as u32) } else { 0 },
            ceiling: None,
        };
        Content {
            shared: Some(self.kind & SHARED != 0),
            owner: self.owner(),
            has_waiters: self.has_waiters(),
            is_plausible: self.is_plausible(),
            ..Content::plain(bytes, Some(SIZE as u64), self.state(), detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(kind: u32, lock: u32, waiters: u32) -> Mutex {
        let mut bytes: Vec<u8> = [kind, lock, waiters].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(SIZE, 0);
        Mutex::new(&bytes).unwrap()
    }

    #[test]
    fn of_the_usual_type() {
        assert_eq!(mutex(0, 0, 0).state(), SyncState::Unlocked);
        let held = mutex(0, 0x8000_0010, 1);
        assert_eq!((held.state(), held.owner(), held.has_waiters()), (SyncState::Locked, Owner::None, true));
        assert!(held.is_plausible() && !mutex(0, 17, 0).is_plausible() && !mutex(3, 0, 0).is_plausible());
    }

    #[test]
    fn those_that_record_their_owner() {
        let owner = |tid| Owner::Tid(InnerTid(tid));
        assert_eq!(mutex(1, 77, 0).owner(), owner(77));
        assert_eq!(mutex(2, 0x8000_0000 | 77, 1).owner(), owner(77));
        assert_eq!(mutex(2 | 4, 0x4000_0000, 0).state(), SyncState::OwnerDied);
        assert_eq!(mutex(2 | 4, 0x4000_0000 | 5, 0).state(), SyncState::Inconsistent);
        assert_eq!(mutex(4, 0x7fff_ffff, 0).state(), SyncState::NotRecoverable);
        let lost = mutex(2, 0xc000_0000, 1);
        assert_eq!((lost.state(), lost.owner()), (SyncState::Locked, Owner::Ended), "its owner has gone");
        assert!(!mutex(2, 0x2000_0000, 0).is_plausible(), "no thread has such an id");
    }
}
