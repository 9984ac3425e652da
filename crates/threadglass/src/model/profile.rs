//! Where a process spends its time.

use super::{Frame, Gap, SyncKind};
use crate::{Pid, RemoteAddr};

/// What the samples are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
pub enum ProfileKind {
    /// Ticks of threads that run.
    Cpu,
    /// Threads that were seen to wait.
    Wait,
}

/// What ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
pub enum ProfileClock {
    /// A clock for each thread, while it runs.
    Threads,
    /// A clock for each CPU, whoever runs there.
    Cpus,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
pub enum ProfileEnd {
    /// The time was over.
    Time,
    /// It was asked to end.
    Asked,
    /// The process has exited.
    Exited,
    /// The process executes another program now.
    Execed,
}

/// Which process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ProfiledProcess {
    /// Its pid.
    pub pid: Pid,
    /// Name of its main thread.
    pub name: String,
    /// Path of its executable, as it sees it.
    pub exe: Option<String>,
}

/// A function, or a group of functions that have one name in one object.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct FunctionShare {
    /// Its name, demangled; `None` where no table names one.
    pub name: Option<String>,
    /// Name of the object's file; `None` for code that is in none.
    pub module: Option<String>,
    /// Ticks in it.
    pub samples: u64,
    /// Of all ticks.
    pub percent: f64,
}

/// A piece of code that many ticks fell into.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct RangeShare {
    /// The function it is in; `None` where no table names one.
    pub function: Option<String>,
    /// The object.
    pub module: Option<String>,
    /// First byte, from the function's start (from the object's where no function is known).
    pub from: u64,
    /// One past the last byte.
    pub to: u64,
    /// Where it is in memory.
    pub address: RemoteAddr,
    /// Source file of the hottest place in it.
    pub file: Option<String>,
    /// Line of the hottest place in it.
    pub line: Option<u32>,
    /// Ticks in it.
    pub samples: u64,
    /// Of all ticks.
    pub percent: f64,
}

/// A stack, the innermost frame first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct StackShare {
    /// Its frames.
    pub frames: Vec<Frame>,
    /// Whether it reaches the thread's start.
    pub whole: bool,
    /// What the thread waited for, from the thing itself to whoever holds it, in words.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub waits_for: Vec<String>,
    /// How often it was seen.
    pub samples: u64,
}

/// Who was seen to hold what threads wait for.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct HolderShare {
    /// The holder, in words.
    pub name: String,
    /// How often a thread waited for it.
    pub samples: u64,
    /// Of all waits for the same thing.
    pub percent: f64,
}

/// Something that threads were seen to wait for.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct WaitShare {
    /// What kind of object; `None` for a system call.
    pub kind: Option<SyncKind>,
    /// Its name, or that of the system call.
    pub name: String,
    /// Where the object is.
    pub address: Option<RemoteAddr>,
    /// Who held it most often, in words.
    pub held_by: Option<String>,
    /// All that were seen to hold it, those that threads waited for most often first.
    pub holders: Vec<HolderShare>,
    /// The function of the program that waits most often.
    pub function: Option<String>,
    /// How often a thread was seen to wait for it.
    pub samples: u64,
    /// Of all waits seen.
    pub percent: f64,
    /// Threads that waited at a time, on average.
    pub threads: f64,
}

/// Cells as profil(2) defines them.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// First address of the code that they stand for.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// Bytes of histogram for each byte of code, in 65,536ths.
    pub scale: u32,
    /// How far the object was moved from the addresses in its file.
    pub bias: u64,
    /// What is covered, in words.
    pub what: String,
    /// The counts as the page has them: the tick that would exceed 32,767 ends the counting.
    pub cells: Vec<u16>,
    /// The counts without that limit.
    pub counts: Vec<u32>,
    /// Whether the counting ended so.
    pub full: bool,
}

/// An object that stacks lead through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its path as the process knows it.
    pub path: String,
    /// First address.
    pub base: RemoteAddr,
    /// One past its last address.
    pub end: RemoteAddr,
}

/// A recording.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Profile {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// Which process.
    pub target: ProfiledProcess,
    /// What the samples are of.
    pub kind: ProfileKind,
    /// Ticks per second of CPU time, or looks per second.
    pub rate: u32,
    /// What ticked; in the end, if that has changed.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub clock: Option<ProfileClock>,
    /// How long it took.
    pub duration_ms: u64,
    /// Why it ended.
    pub end: ProfileEnd,
    /// Samples in all.
    pub samples: u64,
    /// Of these, outside the region that was asked for.
    pub outside: u64,
    /// Of these, in the kernel, where it was sampled.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub kernel: Option<u64>,
    /// CPU time that the process used meanwhile, by the kernel's own count, and how much of it in the kernel. Of what
    /// was seen of child processes too, where these were followed.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub cpu_ms: Option<u64>,
    /// See `cpu_ms`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub kernel_ms: Option<u64>,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// Times that the kernel turned sampling off for a moment because it cost too much.
    pub throttled: u64,
    /// Threads that were seen; of waits in a program with tasks, tasks.
    pub threads: usize,
    /// The runtimes whose tasks those are.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub tasks_of: Vec<&'static str>,
    /// Looks taken at waiting threads.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub looks: Option<u64>,
    /// Functions, those with most samples first.
    pub functions: Vec<FunctionShare>,
    /// The hottest pieces of code.
    pub ranges: Vec<RangeShare>,
    /// What threads waited for.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub waits: Vec<WaitShare>,
    /// Stacks, where they were asked for, those with most samples first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub stacks: Vec<StackShare>,
    /// Objects, in address order.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub mapped: Vec<Mapped>,
    /// The histogram, if it was asked for.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub histogram: Option<Histogram>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}
