//! What would have to be written, worked out without touching anything.

use super::recipes;
use crate::RemoteAddr;
use crate::memory::ReadError;
pub use crate::model::SetPlan as Plan;
use crate::model::{Family, SyncKind, SyncObject, SyncState};
use crate::runtimes::glibc::locks::{CondLayout, decode};

/// Why a state is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Objects like this one cannot be changed from outside (`TD_NOCAPAB`).
    #[error("{0}")]
    NotCapable(&'static str),
    /// Objects of this kind have no state to set (`TD_ERR`).
    #[error("a {kind} has no state that could be set ({why})", kind = .0.word(), why = .1)]
    NoState(SyncKind, &'static str),
    /// The value means nothing for this kind, or not now.
    #[error("{0}")]
    BadValue(String),
    /// It was destroyed.
    #[error("the {kind} was destroyed (pthread_{kind}_destroy): there is nothing to set", kind = .0.word())]
    Destroyed(SyncKind),
    /// Its bytes cannot be such an object.
    #[error("what is there cannot be a {kind}: its bytes make no sense as one (freed memory, or another kind?)", kind = .0.word())]
    Implausible(SyncKind),
    /// A thread is in the middle of taking it or letting it go.
    #[error("it changes hands at this moment: {0} (it is not stuck; look again)")]
    Moving(&'static str),
    /// It is not any more what the plan was made for.
    #[error(
        "the object at {0} has changed since it was looked at (it is not stuck, or somebody else changed it; look again)"
    )]
    Changed(RemoteAddr),
    /// A write was accepted but is not there.
    #[error("the word at {0} does not keep what is written to it")]
    NotKept(RemoteAddr),
    /// Its memory cannot be read or written.
    #[error("{0}")]
    Memory(#[from] ReadError),
}

impl SetError {
    /// Whether the C interface calls this a missing capability rather than an error.
    pub fn is_missing_capability(&self) -> bool {
        matches!(self, Self::NotCapable(_))
    }
}

/// What it takes to give `object`, whose bytes are `bytes_now`, the state that `value` means.
///
/// Reads and writes nothing. Whoever carries it out must wake [`Plan::kick`] afterwards, in any way that makes
/// a thread begin its system call anew: [`super::kick`], or a debugger's stop and continue of that thread.
pub fn plan(object: &SyncObject, bytes_now: &[u8], value: i32) -> Result<Plan, SetError> {
    if object.state == SyncState::Destroyed {
        return Err(SetError::Destroyed(object.kind));
    }
    match (object.family, object.kind) {
        (Family::Pthread, SyncKind::Mutex) => {
            check(object, bytes_now)?;
            recipes::mutex::plan(object, bytes_now, value)
        }
        (Family::Pthread, SyncKind::Semaphore) => {
            check(object, bytes_now)?;
            recipes::semaphore::plan(object, bytes_now, value)
        }
        (Family::Pthread, SyncKind::Rwlock) => {
            check(object, bytes_now)?;
            recipes::rwlock::plan(object, bytes_now, value)
        }
        (Family::RustStd, SyncKind::Mutex) => recipes::rust::plan(object, bytes_now, value),
        (Family::RustStd, SyncKind::Rwlock) => Err(SetError::NotCapable(
            "a Rust RwLock cannot be set: its waiting writers count on a wake-up that only the program can give",
        )),
        (Family::ParkingLot, _) => Err(SetError::NotCapable(
            "a parking_lot lock cannot be set: its waiters stand in a queue that only the program can take them from",
        )),
        (Family::Libc, _) => Err(SetError::NotCapable(
            "a lock that libc keeps for itself is not set: what it guards (a stream, the heap) would be damaged",
        )),
        (_, SyncKind::Cond) => Err(SetError::NoState(SyncKind::Cond, "signal it from the program")),
        (_, kind) => Err(SetError::NoState(kind, "only mutexes, rwlocks and semaphores have one")),
    }
}

fn check(object: &SyncObject, bytes: &[u8]) -> Result<(), SetError> {
    let decoded = decode(object.kind, bytes, CondLayout::Unknown).ok_or(SetError::Implausible(object.kind))?;
    match decoded.state {
        _ if !decoded.is_plausible => Err(SetError::Implausible(object.kind)),
        SyncState::Destroyed => Err(SetError::Destroyed(object.kind)),
        _ => Ok(()),
    }
}
