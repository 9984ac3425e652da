//! What threads waited for over a stretch of time: the report of `tglass contend`.

use super::{Family, Frame, SyncKind, SyncStats};
use crate::RemoteAddr;

/// What was seen of a program's contention.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ContentionReport {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// How long it was looked at.
    pub seconds: f64,
    /// How long all of it took, with the injection of the agent, looking names up and removing the hooks.
    pub run_seconds: f64,
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
    /// Waits that are not among those: they have not ended, or had begun before the agent could see them.
    pub open_waits: u64,
    /// How long they took, from the beginning of the look on.
    pub open_wait_ns: u64,
    /// The stacks of threads that waited, longest first: samples, whose times add up to about the time waited.
    pub waited_in: Vec<WaitStack>,
    /// Where the lock was taken by those who made others wait, longest first.
    pub held_in: Vec<HeldIn>,
    /// What holders were seen to do while others waited, most often first.
    pub holders_did: Vec<HolderDid>,
}

/// Where threads have waited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct WaitStack {
    /// How long.
    pub time_ns: u64,
    /// The function that called the lock function, its caller, and so on, as far as they are known.
    pub frames: Vec<Frame>,
    /// Which of the frames is the first that is no wrapper of lock functions, judged by its name.
    pub caller: usize,
}

/// Where a lock was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct HeldIn {
    /// How long others waited.
    pub time_ns: u64,
    /// The function that took it.
    pub frame: Frame,
}

/// What a holder did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct HolderDid {
    /// `on_cpu`, `runnable` (it had no CPU), `stopped`, `asleep` (in a call) or `waiting` (for another lock).
    pub what: &'static str,
    /// The system call that it was asleep in.
    pub call: Option<String>,
    /// The lock that it waited for.
    pub lock: Option<RemoteAddr>,
    /// How often it was seen.
    pub looks: u64,
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
