//! What moved between two snapshots of a process, and what did not.

use super::words::{Word, words};
use super::{
    Certainty, FindingKind, Frame, Gap, SharedFrame, SharedFrames, SharedText, SnapshotFile, SyncKind, SyncState,
    TargetInfo, ThreadState, Verdict, WaitsFor,
};
use crate::{Lwp, RemoteAddr};

/// Two snapshots of one process, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct SnapshotDiff {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: Word,
    /// The process, as the later snapshot has it.
    pub target: TargetInfo,
    /// The earlier one.
    pub before: DiffSide,
    /// The later one.
    pub after: DiffSide,
    /// From the one to the other, in milliseconds.
    pub apart_ms: u64,
    /// What is wrong in one of them, or in both.
    pub findings: Vec<FindingDiff>,
    /// The threads of both: those that stand first, longest first.
    pub threads: Vec<ThreadDiff>,
    /// The tasks of both, those of which the same can be said together: those that stand first, the largest groups first.
    pub tasks: Vec<TaskDiff>,
    /// Locks that were held or waited for in one of them.
    pub locks: Vec<LockDiff>,
    /// Files of code that one of them has and the other has not, or has otherwise.
    pub files: Vec<String>,
    /// What could not be compared.
    pub gaps: Vec<Gap>,
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct DiffSide {
    /// The file.
    pub snapshot: SnapshotFile,
    /// How many threads there were.
    pub threads: usize,
    /// What `why` said.
    pub verdict: Option<Verdict>,
}

words! {
    /// What became of a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
    pub enum FindingChange {
        /// Both have it, of the same threads and objects.
        Stays = "stays",
        /// Only the later one has it.
        New = "new",
        /// Only the earlier one has it.
        Gone = "gone",
    }
}

/// A finding of one of them, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct FindingDiff {
    /// What became of it.
    pub change: FindingChange,
    /// What it is.
    pub kind: FindingKind,
    /// How sure the later one that has it is.
    pub certainty: Certainty,
    /// Its threads.
    pub threads: Vec<Lwp>,
    /// In a sentence.
    pub text: String,
}

words! {
    /// What became of a thread.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
    pub enum ThreadChange {
        /// It has not run from before the earlier one until after the later one.
        Stands = "stands",
        /// It has run, though it may be where it was.
        Moved = "moved",
        /// It was started in between.
        New = "new",
        /// It has ended in between.
        Ended = "ended",
        /// It is in both, and whether it has run cannot be told.
        Unknown = "unknown",
    }
}

/// Where a thread was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ThreadPlace {
    /// Its state.
    pub state: ThreadState,
    /// The lock that it waited for.
    pub waits_for: Option<WaitsFor>,
    /// What it waited for outside of the process, in words.
    pub waits_outside: Option<String>,
    /// The call that it was in.
    pub call: Option<String>,
    /// Its stack, the innermost frame first.
    pub frames: Vec<Frame>,
}

/// A thread of one of them, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ThreadDiff {
    /// Its LWP.
    pub lwp: Lwp,
    /// Its name.
    pub name: Option<String>,
    /// What became of it.
    pub change: ThreadChange,
    /// For how long it had not run when the later one was taken, at least, in milliseconds, if it stands.
    pub stood_ms: Option<u64>,
    /// CPU time that it has used in between, in microseconds.
    pub ran_us: Option<u64>,
    /// How often it got a CPU in between.
    pub turns: Option<u64>,
    /// Whether its place is the same in both: the same call, and the same stack.
    pub same_place: bool,
    /// Where it was; `None` where that is the same as later, or it is new.
    pub before: Option<ThreadPlace>,
    /// Where it is; `None` if it has ended.
    pub after: Option<ThreadPlace>,
}

words! {
    /// What became of a task.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum TaskChange {
        /// It has waited since before the earlier one: its runtime has noted since when.
        Stands = "stands",
        /// It is where it was. It may have stood there, or have come back: runtimes do not count how often tasks run.
        SamePlace = "same place",
        /// It is elsewhere.
        Moved = "moved",
        /// It was made in between.
        New = "new",
        /// It has ended in between.
        Ended = "ended",
    }
}

/// Where a task was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct TaskPlace {
    /// Its state.
    pub state: ThreadState,
    /// Why it waits, or what it does on its thread, in the words of its runtime.
    pub reason: Option<SharedText>,
    /// Its stack, or the chain of what it awaits, the innermost frame first.
    pub frames: SharedFrames,
}

/// Tasks that were at one place in the earlier one, and are at one place in the later one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct TaskDiff {
    /// What became of them.
    pub change: TaskChange,
    /// The runtime that they are of.
    pub runtime: Word,
    /// Their ids.
    pub tasks: Vec<u64>,
    /// Where the first of them was made.
    pub created_by: Option<SharedFrame>,
    /// For how long each of them had waited when the later one was taken, at least, in milliseconds, if they stand.
    pub stood_ms: Option<u64>,
    /// Where they were; `None` where that is the same as later, or they are new.
    pub before: Option<TaskPlace>,
    /// Where they are; `None` if they have ended.
    pub after: Option<TaskPlace>,
}

words! {
    /// What became of a lock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum LockChange {
        /// Held by the same in both. That nobody else had it in between is known only of holders that stand.
        Held = "held",
        /// Held by somebody else.
        HandedOver = "handed over",
        /// Held only in the later one.
        Taken = "taken",
        /// Held only in the earlier one.
        LetGo = "let go",
        /// Waited for, with no holder known in either.
        Waited = "waited for",
    }
}

/// A lock of one of them, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct LockDiff {
    /// Where it is.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Its name.
    pub name: Option<String>,
    /// What became of it.
    pub change: LockChange,
    /// It in the earlier one, if it was held or waited for.
    pub before: Option<LockUse>,
    /// It in the later one, likewise.
    pub after: Option<LockUse>,
}

/// How a lock was used at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct LockUse {
    /// Its state.
    pub state: SyncState,
    /// Who held it.
    pub held_by: Vec<Lwp>,
    /// Who waited for it.
    pub waiting: Vec<Lwp>,
}
