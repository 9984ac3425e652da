//! glibc's synchronization objects, decoded from their bytes.
//!
//! Nothing in such an object says what it is: the caller knows the kind (from the call that waits on it,
//! a type in the debug information, a word of the user's), and [`Decoded::is_plausible`] says whether the
//! bytes can be one. The layouts have been the same from 2.31 to 2.43 but for the condition variable's.

mod barrier;
mod cond;
mod cond_layout;
pub(crate) mod mutex;
mod once;
pub(crate) mod rwlock;
mod semaphore;
mod spinlock;

pub use cond::CondLayout;
pub use mutex::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, Mutex};
pub use rwlock::Rwlock;
pub use semaphore::Semaphore;

use crate::InnerTid;
use crate::model::{Detail, SyncKind, SyncState};

/// What the bytes of an object say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Its kind.
    pub kind: SyncKind,
    /// Bytes it takes.
    pub size: u64,
    /// Whether processes may share it; `None` where it does not say.
    pub shared: Option<bool>,
    /// Its state.
    pub state: SyncState,
    /// What only its kind has.
    pub detail: Detail,
    /// Its owner, as the owner sees its own id.
    pub owner: Option<InnerTid>,
    /// Whether it believes to have waiters. May be out of date in either direction.
    pub has_waiters: bool,
    /// Whether an object of this kind can have these bytes.
    pub is_plausible: bool,
}

/// Bytes of an object of `kind`; `None` for what has none of its own.
pub fn size_of(kind: SyncKind) -> Option<usize> {
    match kind {
        SyncKind::Mutex => Some(mutex::SIZE),
        SyncKind::Cond => Some(cond::SIZE),
        SyncKind::Rwlock => Some(rwlock::SIZE),
        SyncKind::Semaphore => Some(semaphore::SIZE),
        SyncKind::Barrier => Some(barrier::SIZE),
        SyncKind::Spinlock => Some(spinlock::SIZE),
        SyncKind::Once => Some(once::SIZE),
        SyncKind::Join | SyncKind::Park | SyncKind::Futex => None,
    }
}

/// Decodes `bytes` as an object of `kind`; `None` when there are too few, or the kind has no layout.
pub fn decode(kind: SyncKind, bytes: &[u8], cond: CondLayout) -> Option<Decoded> {
    Some(match kind {
        SyncKind::Mutex => Mutex::new(bytes)?.decoded(),
        SyncKind::Cond => cond::decode(bytes, cond)?,
        SyncKind::Rwlock => Rwlock::new(bytes)?.decoded(),
        SyncKind::Semaphore => Semaphore::new(bytes)?.decoded(),
        SyncKind::Barrier => barrier::decode(bytes)?,
        SyncKind::Spinlock => spinlock::decode(bytes)?,
        SyncKind::Once => once::decode(bytes)?,
        SyncKind::Join | SyncKind::Park | SyncKind::Futex => return None,
    })
}

/// The 32-bit number at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The 64-bit number at `at`.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
