//! What threads waited for over a stretch of time: the report of `tglass contend`.

use super::{Family, SyncKind, SyncStats};
use crate::RemoteAddr;

/// What was seen of a program's contention.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ContentionReport {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// How long it was looked at.
    pub seconds: f64,
    /// What the agent has counted.
    pub locks: Vec<Contended>,
    /// How often it was looked who waits.
    pub looks: u64,
    /// What was seen of locks that the agent does not count.
    pub sampled: Vec<Sampled>,
    /// What was done to the process, if the agent was put into it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub tracked: Option<InjectionReport>,
}

/// An object that threads waited for.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Contended {
    /// Where it is.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Its name, as `tglass locks` has it.
    pub name: Option<String>,
    /// Waits that ended in this time.
    pub waits: u64,
    /// How long they took.
    pub wait_ns: u64,
    /// What was counted in this time.
    pub stats: SyncStats,
    /// Where threads called from that waited, and where the one that made them wait, longest first.
    pub sites: Vec<(String, Option<String>, u64)>,
}

/// A lock of another kind, as samples show it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Sampled {
    /// Where it is.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
    /// Its name, as `tglass locks` has it.
    pub name: Option<String>,
    /// Waiting threads, summed over all looks.
    pub samples: u64,
    /// Looks in which somebody waited for it.
    pub looks: u64,
    /// Functions that waited, with how often they were seen in the looks at stacks, most often first.
    pub sites: Vec<(String, u64)>,
}

/// What was done to a process to count in it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct InjectionReport {
    /// For how long a thread was stopped, in microseconds; `None` if the agent was at work already.
    pub pause_us: Option<u64>,
    /// Slots that were patched.
    pub slots: u32,
    /// Slots that could not be.
    pub missed: u32,
    /// Whether all were restored.
    pub restored: bool,
    /// Name of the system call that returned early.
    pub interrupted: Option<&'static str>,
}
