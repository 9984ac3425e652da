//! A look at a whole target.

use super::{Gap, Thread};
use crate::Pid;
use crate::glibc::Provenance;
use crate::signals::SignalSet;

/// Version of the JSON that the model serialises to.
pub const SCHEMA: &str = "threadglass/1";

/// The C library a target runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "lowercase"))]
pub enum Libc {
    /// glibc.
    Glibc {
        /// Its version string, where the program has not been stripped of it.
        version: Option<String>,
        /// How its layout was learned.
        layout: Provenance,
    },
    /// Another one, or none: only what the kernel knows is shown.
    Other {
        /// What it seems to be, such as `musl`.
        name: Option<String>,
    },
    /// The target's memory may not be read, so it cannot be told.
    Unread,
}

/// Which process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TargetInfo {
    /// Its pid.
    pub pid: Pid,
    /// Name of its main thread.
    pub name: String,
    /// Path of its executable, as the target sees it.
    pub exe: Option<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// Whether it lives in a pid namespace of its own.
    pub in_pid_namespace: bool,
    /// Its C library.
    pub libc: Libc,
    /// Signals pending for the process as a whole, for any thread to take.
    pub shared_pending: SignalSet,
    /// Pid (or thread) of its tracer, if a debugger is attached.
    pub tracer: Option<i32>,
}

/// Everything seen in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Which process.
    pub target: TargetInfo,
    /// When the look began, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// For how long the target was stopped, in microseconds.
    pub pause_us: u64,
    /// Its threads: the main thread first, then by LWP; ended ones last.
    pub threads: Vec<Thread>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}
