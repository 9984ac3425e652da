//! A look at a whole target.

use super::words::Word;
use super::{
    Finding, Gap, LanguageRuntime, SignalSet, Stranger, SyncObject, Task, TaskGroup, TaskRuntimeInfo, Thread, Verdict,
    WaitGroup,
};
use crate::{Lwp, Pid, RemoteAddr};

/// Version of the JSON that the model serialises to.
pub const SCHEMA: &str = "threadglass/1";

/// How the layout of a libc was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Provenance {
    /// From the descriptors that the target's libc exports for debuggers.
    Described,
    /// From the shape of a living thread's descriptor: the program has no symbols.
    Structural,
}

/// The C library a target runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "lowercase"))]
pub enum Libc {
    /// glibc.
    Glibc {
        /// Its version string, where the program has not been stripped of it.
        version: Option<String>,
        /// How its layout was learned.
        layout: Provenance,
    },
    /// musl.
    Musl,
    /// Another one, or none: only what the kernel knows is shown.
    Other {
        /// What it seems to be, such as `musl` of a version that cannot be read.
        name: Option<String>,
    },
    /// The target's memory may not be read, so it cannot be told.
    Unread,
}

/// Which process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
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
    /// Signals pending for the process as a whole, for any thread to take. A core does not have them.
    pub shared_pending: Option<SignalSet>,
    /// Pid (or thread) of its tracer, if a debugger is attached.
    pub tracer: Option<i32>,
    /// The core file it was read from; `None` for a live process.
    pub core: Option<CoreInfo>,
    /// The snapshot file that the answer was kept in; `None` where the target was looked at just now.
    pub snapshot: Option<SnapshotFile>,
}

/// Who wrote a core file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum CoreWriter {
    /// The kernel, when a signal killed the process.
    #[default]
    Kernel,
    /// A debugger, of a process that may have gone on (gcore).
    Debugger,
}

/// A core file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct CoreInfo {
    /// Where it is.
    pub path: String,
    /// Who wrote it.
    pub writer: CoreWriter,
    /// The signal that killed the process, or at which a debugger had stopped it.
    pub signal: Option<String>,
    /// The thread that took the signal.
    pub signal_lwp: Option<Lwp>,
    /// The address whose use raised the signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE).
    pub fault_address: Option<RemoteAddr>,
    /// The process that sent the signal, if one did.
    pub sender: Option<i32>,
    /// The command line, cut to 80 bytes.
    pub command: Option<String>,
}

/// A snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct SnapshotFile {
    /// Where it is.
    pub path: String,
    /// When it was taken, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// The version of the library that took it.
    pub written_by: String,
    /// Whether what comes from the memory of the process was left out, but for the words of locks.
    pub redacted: bool,
}

/// Everything seen in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Snapshot {
    /// [`SCHEMA`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub schema: Word,
    /// Which process.
    pub target: TargetInfo,
    /// When the look began, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// For how long threads of the target were stopped, in microseconds: the sum over all of them.
    pub pause_us: u64,
    /// For how long any one thread was, at most.
    pub longest_pause_us: u64,
    /// Its threads: the main thread first, then by LWP; ended ones last.
    pub threads: Vec<Thread>,
    /// Runtimes that run tasks on those threads, where they were looked for.
    pub task_runtimes: Vec<TaskRuntimeInfo>,
    /// Their tasks, by id, where they were looked for.
    pub tasks: Vec<Task>,
    /// The same by equal stacks, the largest group first and those of the runtime itself last, where stacks were asked for.
    pub task_groups: Vec<TaskGroup>,
    /// Synchronization objects that threads wait for or hold, where they were looked for.
    pub objects: Vec<SyncObject>,
    /// The answer in one sentence, where one was asked for.
    pub verdict: Option<Verdict>,
    /// What is wrong, the worst first, where it was looked for.
    pub findings: Vec<Finding>,
    /// What threads wait for or do, by groups, the ones that wait for work last; where it was asked for.
    pub groups: Vec<WaitGroup>,
    /// Threads of other processes that waits lead to, with their stacks, where that was asked for.
    pub strangers: Vec<Stranger>,
    /// Languages with threads or locks of their own that the target runs, where they were looked for.
    pub runtimes: Vec<LanguageRuntime>,
    /// How many looks the findings are taken from.
    pub looks: u32,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

impl Snapshot {
    /// The same look at the same target, with these threads alone and nothing else that was seen.
    pub fn of_threads(&self, threads: Vec<Thread>) -> Self {
        let (task_runtimes, tasks, task_groups, objects, findings) = Default::default();
        let (verdict, groups, strangers, runtimes, gaps) = Default::default();
        Self {
            schema: self.schema,
            target: self.target.clone(),
            taken_at_ms: self.taken_at_ms,
            pause_us: self.pause_us,
            longest_pause_us: self.longest_pause_us,
            looks: self.looks,
            threads,
            task_runtimes,
            tasks,
            task_groups,
            objects,
            verdict,
            findings,
            groups,
            strangers,
            runtimes,
            gaps,
        }
    }
}
