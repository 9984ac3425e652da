//! `pthread_mutex_t`.

use super::{u32_at, u64_at};
use crate::memory::Memory;
use crate::model::{Detail, MutexProtocol, MutexType, SyncState};
use crate::runtimes::{Content, Owner};
use crate::{InnerTid, RemoteAddr};

pub(super) const SIZE: usize = 40;

/// Somebody waits, in a word that the kernel shares.
pub const FUTEX_WAITERS: u32 = 0x8000_0000;
/// The owner died.
pub const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// The owner's id.
pub const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

const ROBUST: u32 = 16;
const INHERIT: u32 = 32;
const PROTECT: u32 = 64;
const SHARED: u32 = 128;
/// Two bits for lock elision, which leave the type alone.
const ELISION: u32 = 256 | 512;
const DESTROYED: u32 = u32::MAX;
/// In place of the owner: taken after its owner died, and nobody has said yet that it is consistent.
const OWNER_INCONSISTENT: u32 = 0x7fff_ffff;
/// In place of the owner: given up for good.
const OWNER_NOT_RECOVERABLE: u32 = 0x7fff_fffe;
/// No kernel gives out higher ids.
const MAX_TID: u32 = 1 << 22;
/// A ceiling is kept above the lock's own bits.
pub(crate) const CEILING_SHIFT: u32 = 19;

/// The fields of a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutex {
    /// 0 free, 1 locked, 2 locked and perhaps waited for; of robust and priority-inheriting ones the
    /// owner's id with the kernel's bits.
    pub lock: u32,
    /// Acquisitions by the owner.
    pub count: u32,
    /// The owner.
    pub owner: u32,
    /// Holders, and threads in condition waits with it.
    pub users: u32,
    /// Type and attributes.
    pub kind: u32,
    /// The robust list's two pointers.
    list: [u64; 2],
}

impl Mutex {
    /// From its bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            lock: u32_at(bytes, 0)?,
            count: u32_at(bytes, 4)?,
            owner: u32_at(bytes, 8)?,
            users: u32_at(bytes, 12)?,
            kind: u32_at(bytes, 16)?,
            list: [u64_at(bytes, 24)?, u64_at(bytes, 32)?],
        })
    }

    /// What lies at `addr`, if that can be read.
    pub(crate) fn read(memory: &dyn Memory, addr: RemoteAddr) -> Option<Self> {
        Self::new(&memory.read_vec(addr, SIZE).ok()?)
    }

    /// Whether it survives its owner's death.
    pub fn is_robust(&self) -> bool {
        self.kind & ROBUST != 0
    }

    /// What it does to priorities.
    pub fn protocol(&self) -> MutexProtocol {
        match (self.kind & INHERIT != 0, self.kind & PROTECT != 0) {
            (true, _) => MutexProtocol::Inherit,
            (false, true) => MutexProtocol::Protect,
            (false, false) => MutexProtocol::None,
        }
    }

    /// Its type.
    pub fn mutex_type(&self) -> MutexType {
        match self.kind & 3 {
            0 => MutexType::Normal,
            1 => MutexType::Recursive,
            2 => MutexType::Errorcheck,
            _ => MutexType::Adaptive,
        }
    }

    /// Whether the lock word is the owner's id.
    pub fn word_is_owner(&self) -> bool {
        self.kind & (ROBUST | INHERIT) != 0
    }

    /// The lock word without the ceiling.
    fn plain_lock(&self) -> u32 {
        match self.protocol() {
            MutexProtocol::Protect => self.lock & ((1 << CEILING_SHIFT) - 1),
            _ => self.lock,
        }
    }

    /// Its state.
    pub fn state(&self) -> SyncState {
        if self.kind == DESTROYED {
            return SyncState::Destroyed;
        }
        if !self.word_is_owner() {
            return if self.plain_lock() == 0 { SyncState::Unlocked } else { SyncState::Locked };
        }
        let held = self.lock & FUTEX_TID_MASK != 0;
        match self.owner {
            OWNER_NOT_RECOVERABLE => SyncState::NotRecoverable,
            OWNER_INCONSISTENT if held => SyncState::Inconsistent,
            _ if self.lock & FUTEX_OWNER_DIED != 0 => SyncState::OwnerDied,
            _ if held => SyncState::Locked,
            _ => SyncState::Unlocked,
        }
    }

    /// Who owns it; `None` when nobody does, or in the moment between taking it and signing for it.
    pub fn owner(&self) -> Option<InnerTid> {
        let owner = match self.state() {
            SyncState::Locked | SyncState::Inconsistent if self.word_is_owner() => self.lock & FUTEX_TID_MASK,
            SyncState::Locked => self.owner,
            _ => return None,
        };
        (1..=MAX_TID).contains(&owner).then_some(InnerTid(owner as i32))
    }

    /// Acquisitions beyond the first.
    pub fn recursion(&self) -> u32 {
        match self.mutex_type() {
            MutexType::Recursive if self.state().is_held() => self.count.saturating_sub(1),
            _ => 0,
        }
    }

    /// Whether it believes to have waiters.
    pub fn has_waiters(&self) -> bool {
        match self.word_is_owner() {
            true => self.lock & FUTEX_WAITERS != 0,
            false => self.plain_lock() == 2,
        }
    }

    /// Whether a mutex can have these bytes.
    pub fn is_plausible(&self) -> bool {
        if self.kind == DESTROYED {
            // Nothing but this is left of a destroyed one.
            return self.lock <= 2;
        }
        let known = self.kind & !(3 | ROBUST | INHERIT | PROTECT | SHARED | ELISION) == 0;
        let one_protocol = self.kind & (INHERIT | PROTECT) != INHERIT | PROTECT;
        let lock = match self.word_is_owner() {
            true => {
                (self.owner >= OWNER_NOT_RECOVERABLE || self.owner <= MAX_TID) && self.lock & FUTEX_TID_MASK <= MAX_TID
            }
            false => self.plain_lock() <= 2 && self.owner <= MAX_TID,
        };
        // Only robust ones are on a list; others spin and may keep a count there before 2.43.
        let listed = self.is_robust() || self.list == [0; 2];
        // Between taking and signing there is a moment without an owner; an owner of a free one is never.
        let owned = self.word_is_owner() || self.plain_lock() != 0 || self.owner == 0;
        let counted = self.count == 0 || self.mutex_type() == MutexType::Recursive || self.kind & !3 != 0;
        known && one_protocol && lock && listed && owned && counted && self.users < 1 << 22
    }

    pub(super) fn content(&self, bytes: &[u8]) -> Content {
        let detail = Detail::Mutex {
            kind: self.mutex_type(),
            robust: self.is_robust(),
            protocol: self.protocol(),
            recursion: self.recursion(),
            ceiling: (self.protocol() == MutexProtocol::Protect).then_some((self.lock >> CEILING_SHIFT) as u8),
        };
        Content {
            // Robust ones have the bit always.
            shared: (!self.is_robust()).then_some(self.kind & SHARED != 0 && self.kind != DESTROYED),
            owner: self.owner().map_or(Owner::None, Owner::Tid),
            has_waiters: self.has_waiters(),
            is_plausible: self.is_plausible(),
            ..Content::plain(bytes, Some(SIZE as u64), self.state(), detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(words: [u32; 5]) -> Mutex {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(SIZE, 0);
        Mutex::new(&bytes).unwrap()
    }

    #[test]
    fn plain_ones() {
        let free = mutex([0; 5]);
        assert_eq!((free.state(), free.owner(), free.is_plausible()), (SyncState::Unlocked, None, true));
        let held = mutex([2, 3, 77, 1, 1]);
        assert_eq!((held.owner(), held.recursion(), held.has_waiters()), (Some(InnerTid(77)), 2, true));
        let taking = mutex([1, 0, 0, 0, 0]);
        assert_eq!((taking.state(), taking.owner()), (SyncState::Locked, None));
        assert!(!mutex([3, 0, 1, 1, 0]).is_plausible());
        assert!(!mutex([0, 0, 1, 0, 0]).is_plausible());
        assert_eq!(mutex([0, 0, 0, 0, u32::MAX]).state(), SyncState::Destroyed);
    }

    #[test]
    fn those_with_a_ceiling() {
        let free = mutex([20 << 19, 0, 0, 0, 64]);
        assert_eq!(free.state(), SyncState::Unlocked);
        assert!(matches!(free.content(&[]).detail, Detail::Mutex { ceiling: Some(20), .. }));
        let held = mutex([20 << 19 | 1, 1, 9, 1, 64]);
        assert_eq!((held.state(), held.owner()), (SyncState::Locked, Some(InnerTid(9))));
    }

    #[test]
    fn those_the_kernel_shares() {
        let held = mutex([FUTEX_WAITERS | 42, 1, 42, 1, 128 | 16]);
        assert_eq!((held.owner(), held.has_waiters()), (Some(InnerTid(42)), true));
        assert_eq!(mutex([FUTEX_OWNER_DIED, 0, 42, 1, 128 | 16]).state(), SyncState::OwnerDied);
        let taken = mutex([42, 1, 0x7fff_ffff, 1, 128 | 16]);
        assert_eq!((taken.state(), taken.owner()), (SyncState::Inconsistent, Some(InnerTid(42))));
        assert_eq!(mutex([0, 0, 0x7fff_fffe, 0, 128 | 16]).state(), SyncState::NotRecoverable);
        assert_eq!(mutex([7, 1, 7, 1, 32]).owner(), Some(InnerTid(7)));
    }
}
