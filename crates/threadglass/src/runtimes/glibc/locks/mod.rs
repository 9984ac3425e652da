//! glibc's synchronization objects, decoded from their bytes.
//!
//! Nothing in such an object says what it is: the caller knows the kind (from the call that waits on it,
//! a type in the debug information, a word of the user's), and [`Content::is_plausible`] says whether the
//! bytes can be one. The layouts have been the same from 2.31 to 2.43 but for the condition variable's.

mod barrier;
mod cond;
mod cond_layout;
pub(crate) mod mutex;
pub(crate) mod rwlock;
mod semaphore;
mod word;

pub use cond::CondLayout;
pub use mutex::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, Mutex};
pub use rwlock::Rwlock;
pub use semaphore::Semaphore;

use crate::model::SyncKind;
use crate::runtimes::{Content, u32_at, u64_at};

/// Bytes of an object of `kind`; `None` for what has none of its own.
pub fn size_of(kind: SyncKind) -> Option<usize> {
    match kind {
        SyncKind::Mutex => Some(mutex::SIZE),
        SyncKind::Cond => Some(cond::SIZE),
        SyncKind::Rwlock => Some(rwlock::SIZE),
        SyncKind::Semaphore => Some(semaphore::SIZE),
        SyncKind::Barrier => Some(barrier::SIZE),
        SyncKind::Spinlock | SyncKind::Once => Some(word::SIZE),
        SyncKind::Join | SyncKind::Channel | SyncKind::WaitGroup | SyncKind::Park | SyncKind::Futex => None,
    }
}

/// Decodes `bytes` as an object of `kind`; `None` when there are too few, or the kind has no layout.
pub fn decode(kind: SyncKind, bytes: &[u8], cond: CondLayout) -> Option<Content> {
    Some(match kind {
        SyncKind::Mutex => Mutex::new(bytes)?.content(bytes),
        SyncKind::Cond => cond::decode(bytes, cond)?,
        SyncKind::Rwlock => Rwlock::new(bytes)?.content(bytes),
        SyncKind::Semaphore => Semaphore::new(bytes)?.content(bytes),
        SyncKind::Barrier => barrier::decode(bytes)?,
        SyncKind::Spinlock => word::spinlock(bytes)?,
        SyncKind::Once => word::once(bytes)?,
        SyncKind::Join | SyncKind::Channel | SyncKind::WaitGroup | SyncKind::Park | SyncKind::Futex => return None,
    })
}
