//! Synchronization objects. A handle is an address: what is there is found out in each call.

mod handles;
mod info;
mod set_state;
pub(crate) mod stats;
mod threads;

use crate::abi::{SyncHandle, Td, TdErr};
use crate::sessions::{self, Call};
use threadglass::RemoteAddr;
use threadglass::model::{Family, SyncKind, SyncObject};

/// Gate for handles of synchronization objects: not NULL, not of address 0, of a known session.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
unsafe fn object(sh: *const SyncHandle) -> Td<(Call, RemoteAddr)> {
    if sh.is_null() {
        return Err(TdErr::BadSh);
    }
    // SAFETY: not NULL, so a handle by the caller's promise.
    let handle = unsafe { sh.read() };
    if handle.sh_unique.is_null() {
        return Err(TdErr::BadSh);
    }
    Ok((sessions::enter(handle.sh_ta_p)?, RemoteAddr(handle.sh_unique.addr() as u64)))
}

/// The `td_sync_type_e` of an object; `None` for kinds that Solaris did not have, and for what may be of such
/// a kind but cannot be read as one.
fn type_of(object: &SyncObject) -> Option<i32> {
    if object.family == Family::Pthread && object.size.is_none() {
        return None;
    }
    match object.kind {
        SyncKind::Cond => Some(1),
        SyncKind::Mutex => Some(2),
        SyncKind::Semaphore => Some(3),
        SyncKind::Rwlock => Some(4),
        SyncKind::Barrier
        | SyncKind::Spinlock
        | SyncKind::Once
        | SyncKind::Join
        | SyncKind::Channel
        | SyncKind::WaitGroup
        | SyncKind::Park
        | SyncKind::Futex => None,
    }
}
