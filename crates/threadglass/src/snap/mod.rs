//! Snapshots: files that keep what a target showed, to be asked later and elsewhere.
//!
//! A snapshot keeps *answers*, not memory. Of a process that is not stopped, memory is read over a while in which its threads
//! go on; a look knows that and looks again before it calls anything a hang. Who looked at such a copy later could not look
//! again, and would see locks of one moment beside threads of another: hangs that never were. So the looks are taken when the
//! snapshot is, all of them, and the file has what they found, with the evidence and the gaps of each. It is the same as the
//! process would have answered, down to what only watching can tell (who runs, who was woken, how long), and what only the
//! machine can tell (who is at the other end of a pipe).
//!
//! [`take`] asks a target all that a [`Snap`] answers: [`Part`] lists it. [`compare`](fn@compare) tells what moved between two
//! of them.

mod compare;
mod counters;
mod error;
mod file;
mod objects;
mod packed;
mod redact;
mod take;
mod tasks;

pub use compare::{CompareError, compare};
pub use error::{SnapError, SnapFault};
pub use file::Snap;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use packed::of_texts;
pub use packed::{FORMAT, is_snapshot};
pub use take::{TakeOptions, Taken, take};

use crate::model::Remedy;
use serde::{Deserialize, Serialize};

/// What a snapshot can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Why the process hangs: [`look::explain_for`](crate::look::explain_for).
    Why,
    /// The same with all stacks: [`look::explain_whole`](crate::look::explain_whole).
    Report,
    /// The threads, and the tasks on them.
    Threads,
    /// The same with stacks.
    Stacks,
    /// The locks that threads hold or wait for.
    Locks,
    /// All locks.
    AllLocks,
    /// Thread-specific data: [`look::thread_data`](crate::look::thread_data).
    Data,
}

impl Part {
    /// All of them, in the order in which they are taken: the answer that matters most first.
    pub const ALL: [Self; 7] =
        [Self::Why, Self::Report, Self::Threads, Self::Stacks, Self::Locks, Self::AllLocks, Self::Data];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Why => "why",
            Self::Report => "report",
            Self::Threads => "threads",
            Self::Stacks => "stacks",
            Self::Locks => "locks",
            Self::AllLocks => "all locks",
            Self::Data => "thread-specific data",
        }
    }
}

/// An answer as it is in the file. A target that refuses one question answers others.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept<T> {
    Answer(T),
    Refused { why: String, remedy: Option<Remedy> },
}
