//! The answer of a look in one sentence, and what threads wait for, by groups.

use super::words::words;
use super::{Certainty, Frame, SyncKind};
use crate::{Lwp, RemoteAddr};

words! {
    /// What a process that seems to hang does. The first that applies, in this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum VerdictKind {
        /// Threads wait for each other in a circle, or for themselves.
        Deadlock = "deadlock",
        /// Threads wait for what no thread is left to do.
        NobodyLeft = "nobody left",
        /// Threads are stopped.
        Stopped = "stopped",
        /// Threads have been inside the kernel for seconds, where no signal wakes them.
        Unkillable = "unkillable",
        /// Threads wait for one that waits for something else or is busy, or for a lock that is handed from thread to thread.
        Behind = "behind",
        /// Threads run.
        Busy = "busy",
        /// No thread runs, and one waits for another process: for what it writes, a file lock, its end.
        OtherProcess = "other process",
        /// All threads wait for work, and none waits for another.
        Idle = "idle",
        /// It cannot be told.
        Unknown = "unknown",
    }
}

/// The answer to why a process hangs, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Verdict {
    /// What.
    pub kind: VerdictKind,
    /// How sure.
    pub certainty: Certainty,
    /// In a sentence.
    pub text: String,
    /// What to do about it, where that is known.
    pub way_out: Option<String>,
}

/// Threads that wait at the same place in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct WaitGroup {
    /// The threads.
    pub threads: Vec<Lwp>,
    /// What they wait for, or do, in words.
    pub what: String,
    /// The kind of lock, where it is one.
    pub kind: Option<SyncKind>,
    /// The lock, where all wait for the same one.
    pub object: Option<RemoteAddr>,
    /// The system call that they are in, where they wait for no lock.
    pub call: Option<String>,
    /// Whether this is how threads wait for work: nothing is wrong with it.
    pub idle: bool,
    /// For how long the one that waits longest has not run, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// The same of the one that has waited for the shortest time.
    pub youngest_ms: Option<u64>,
    /// The innermost frames that are the program's own, of the first of them.
    pub frames: Vec<Frame>,
}
