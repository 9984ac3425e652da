//! A change of an object's state: what it takes, and what came of it.

use super::{Family, SyncKind, SyncObject, TargetInfo};
use crate::{Lwp, Pid, RemoteAddr};
use std::path::PathBuf;

/// One 32-bit word to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct SetPlan {
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

impl SetPlan {
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

/// A thread that was not kicked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct NotKicked {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub lwp: Lwp,
    /// Why not.
    pub why: String,
}

/// What was done to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct SetDone {
    /// Words written.
    pub words: usize,
    /// Whether somebody has changed the object since: the new state is in use already.
    pub moved_on: bool,
    /// Threads that were made to look again.
    pub woken: Vec<Lwp>,
    /// Those that were not.
    pub not_woken: Vec<NotKicked>,
    /// Threads in system calls that return EINTR because of it, with the call's number.
    pub interrupted: Vec<(Lwp, i64)>,
    /// For how long threads were stopped, in microseconds: the sum over all of them.
    pub pause_us: u64,
    /// For how long any one was, at most.
    pub longest_pause_us: u64,
    /// Where it is written down; `None` when nothing was written.
    pub journal: Option<PathBuf>,
    /// The object afterwards.
    pub object: Option<SyncObject>,
}

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct SetReport {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// Which process.
    pub target: TargetInfo,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// The object before.
    pub object: SyncObject,
    /// What it takes.
    pub plan: SetPlan,
    /// Threads of other processes that wait for it.
    pub waiters_elsewhere: Vec<(Pid, Lwp)>,
    /// A code for this picture.
    pub seen: String,
    /// What was done.
    pub done: Option<SetDone>,
}

/// What came of an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct UndoDone {
    /// For how long threads were stopped, in microseconds.
    pub pause_us: u64,
}

/// An undo that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct UndoReport {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// What it takes.
    pub plan: SetPlan,
    /// Where the change is written down.
    pub journal: PathBuf,
    /// What was done.
    pub done: Option<UndoDone>,
}
