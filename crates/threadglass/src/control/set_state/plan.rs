//! What would have to be written, worked out without touching anything.

use super::recipes;
use crate::glibc::sync::{CondLayout, decode};
use crate::model::{Family, SyncKind, SyncObject, SyncState};
use crate::target::ReadError;
use crate::{Lwp, RemoteAddr};

/// One 32-bit word to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WordWrite {
    /// Where.
    pub address: RemoteAddr,
    /// Which field of the object it is.
    pub field: &'static str,
    /// What must be there.
    pub old: u32,
    /// What will be there.
    pub new: u32,
}

/// What it takes to change an object's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Plan {
    /// The object.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
    /// The value asked for.
    pub value: i32,
    /// Its bytes when the plan was made.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub before: Vec<u8>,
    /// The words to write, in the order of writing. Empty when it has that state already.
    pub words: Vec<WordWrite>,
    /// Whether the new state lets somebody in: then whoever waits has to look at the object again.
    pub wakes: bool,
    /// Threads of the target that are known to wait and have to look again.
    pub kick: Vec<Lwp>,
    /// What the object is afterwards, in words.
    pub becomes: String,
    /// What may break, one sentence each.
    pub consequences: Vec<String>,
}

impl Plan {
    /// The object's bytes once everything is written.
    pub fn after(&self) -> Vec<u8> {
        let mut bytes = self.before.clone();
        for word in &self.words {
            let at = word.address.0.checked_sub(self.address.0).and_then(|at| usize::try_from(at).ok());
            if let Some(place) = at.and_then(|at| bytes.get_mut(at..at.checked_add(4)?)) {
                place.copy_from_slice(&word.new.to_le_bytes());
            }
        }
        bytes
    }
}

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
