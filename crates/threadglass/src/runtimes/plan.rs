//! What would have to be written, worked out without touching anything.

use crate::memory::ReadError;
use crate::model::{SetPlan, SyncKind, SyncObject, SyncState};
use crate::{Lwp, RemoteAddr};

/// Why a state is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Objects like this one cannot be changed from outside (`TD_NOCAPAB`).
    #[error("{0}")]
    NotCapable(&'static str),
    /// Objects of this kind have no state to set (`TD_ERR`).
    #[error("a {kind} has no state that can be set ({why})", kind = .0.word(), why = .1)]
    NoState(SyncKind, &'static str),
    /// The value means nothing for this kind, or not now.
    #[error("{0}")]
    BadValue(String),
    /// It was destroyed.
    #[error("the {kind} was destroyed (pthread_{kind}_destroy): there is nothing to set", kind = .0.word())]
    Destroyed(SyncKind),
    /// Its bytes cannot be such an object.
    #[error("there is no {kind} there: the bytes make no sense as one (freed memory, or another kind?)", kind = .0.word())]
    Implausible(SyncKind),
    /// A thread is in the middle of taking it or letting it go.
    #[error("the lock is being handed over: {0} (it is not stuck; look again)")]
    Moving(&'static str),
    /// It is not any more what the plan was made for.
    #[error("the lock at {0} has changed since the look (it is not stuck, or somebody else changed it; look again)")]
    Changed(RemoteAddr),
    /// A thread that it concerns can be neither held still nor woken.
    #[error("thread {0} cannot be woken: {1} (nothing was written)")]
    NotWoken(Lwp, String),
    /// A write was accepted but is not there.
    #[error("the word at {0} does not keep what is written to it")]
    NotKept(RemoteAddr),
    /// Its memory cannot be read or written.
    #[error("{0}")]
    Memory(#[from] ReadError),
}

impl SetError {
    /// Of an object of `kind`, which has none.
    pub(super) fn no_state(kind: SyncKind) -> Self {
        match kind {
            SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Semaphore => {
                Self::NotCapable("a lock of this library cannot be set: only the program knows how to wake its waiters")
            }
            SyncKind::Cond => Self::NoState(kind, "signal it from the program"),
            _ => Self::NoState(kind, "only mutexes, rwlocks and semaphores have one"),
        }
    }

    /// Whether the C interface calls this a missing capability rather than an error.
    pub fn is_missing_capability(&self) -> bool {
        matches!(self, Self::NotCapable(_))
    }
}

/// What it takes to give `object`, whose bytes are `bytes_now`, the state that `value` means.
///
/// Reads and writes nothing. Whoever carries it out must wake [`SetPlan::kick`] afterwards, in any way that makes
/// a thread begin its system call anew: [`crate::act::set_state::kick`], or a debugger's stop and continue of that thread.
pub fn plan(object: &SyncObject, bytes_now: &[u8], value: i32) -> Result<SetPlan, SetError> {
    if object.state == SyncState::Destroyed {
        return Err(SetError::Destroyed(object.kind));
    }
    super::of(object.family).set_state(object, bytes_now, value)
}
