//! musl's synchronization objects, decoded from their bytes.

mod mutex;
mod others;

pub(super) use mutex::{MAX_TID, Mutex};
pub(super) use others::{barrier, cond, once, rwlock, semaphore};

use crate::model::SyncKind;

/// Bytes of an object of `kind`.
pub(super) fn size_of(kind: SyncKind) -> usize {
    match kind {
        SyncKind::Mutex => 40,
        SyncKind::Cond => 48,
        SyncKind::Rwlock => 56,
        SyncKind::Semaphore | SyncKind::Barrier => 32,
        _ => 4,
    }
}

/// Threads that can be counted as waiting for one object.
const MAX_WAITERS: u32 = 1 << 22;
