//! What a watch tells: trouble that processes have got into, and that it has dissolved.

use super::words::words;
use super::{Certainty, Finding, Gap, SyncKind};
use crate::{Lwp, Pid};

words! {
    /// What is the matter with a process that does not go on. They are told apart because not all of them are cured alike.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum TroubleKind {
        /// Threads or tasks wait for each other in a circle, or for themselves.
        Deadlocked = "deadlocked",
        /// Threads wait for what no thread is left to do.
        NobodyLeft = "nobody_left",
        /// All workers of a pool wait inside tasks, or a poll that blocks keeps other tasks waiting.
        WorkersStarve = "workers_starve",
        /// A thread has waited for long behind one that holds a lock.
        Behind = "behind",
        /// A thread has waited for long, directly or behind a lock, for an answer of another process.
        OtherService = "other_service",
        /// Threads want a CPU and hardly get one.
        StarvedOfCpu = "starved_of_cpu",
        /// Stopped by a signal.
        Stopped = "stopped",
        /// Stopped by a debugger.
        Traced = "traced",
        /// Frozen with its control group.
        Frozen = "frozen",
        /// Threads have been inside the kernel for long, where no signal wakes them (D state).
        Unkillable = "unkillable",
    }
}

impl TroubleKind {
    /// Whether to start the process anew would help.
    pub fn restart_helps(self) -> RestartHelps {
        match self {
            Self::Deadlocked | Self::NobodyLeft | Self::WorkersStarve => RestartHelps::Yes,
            Self::Behind => RestartHelps::Perhaps,
            Self::OtherService
            | Self::StarvedOfCpu
            | Self::Stopped
            | Self::Traced
            | Self::Frozen
            | Self::Unkillable => RestartHelps::No,
        }
    }
}

words! {
    /// Whether to start a process anew would help it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum RestartHelps {
        /// It waits for itself, and for nobody else.
        Yes = "yes",
        /// The cause is elsewhere, and will still be there.
        No = "no",
        /// The thread that the others wait for may go on by itself.
        Perhaps = "perhaps",
    }
}

words! {
    /// What has become of trouble.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum WatchEventKind {
        /// It was found, and confirmed; or has come to concern more threads.
        Found = "found",
        /// It is over, and the process goes on.
        Dissolved = "dissolved",
        /// The process has ended with it.
        Ended = "ended",
    }
}

/// A process that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct WatchedProcess {
    /// Which.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// When it was started, in ticks of the kernel since the machine was: with the pid, its identity.
    pub start_time: u64,
}

/// Something that a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct WatchEvent {
    /// Version of what is printed: [`super::SCHEMA`].
    pub schema: &'static str,
    /// What has become of the trouble.
    pub event: WatchEventKind,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the look, from 1.
    pub look: u64,
    /// The process.
    pub process: WatchedProcess,
    /// What is, or was, the matter.
    pub kind: TroubleKind,
    /// How sure.
    pub certainty: Certainty,
    /// In a sentence.
    pub text: String,
    /// What to do about it, where that is known.
    pub way_out: Option<String>,
    /// Whether to start the process anew would help.
    pub restart_helps: RestartHelps,
    /// For how long it has been so at least, in milliseconds.
    pub for_ms: u64,
    /// The threads that do not go on because of it, as far as they were named.
    pub threads: Vec<Lwp>,
    /// What was found, as `why` tells it.
    pub findings: Vec<Finding>,
    /// The snapshot that was kept of it.
    pub snapshot: Option<String>,
}

/// Threads that wait for one lock, when they were last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// What it is.
    pub kind: SyncKind,
    /// How many threads.
    pub waiters: usize,
    /// For how long the first of them has, in milliseconds.
    pub longest_ms: u64,
}

/// How many threads are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStates {
    /// On a CPU, or queued for one.
    pub running: usize,
    /// Asleep on a word in memory: a lock, a condition, a channel.
    pub on_words: usize,
    /// Asleep in other calls.
    pub asleep: usize,
    /// Inside the kernel where no signal wakes them.
    pub unkillable: usize,
    /// Stopped, by a signal or a debugger.
    pub stopped: usize,
}

impl ThreadStates {
    /// All of them.
    pub fn all(&self) -> usize {
        self.running + self.on_words + self.asleep + self.unkillable + self.stopped
    }
}

/// What a watch knows of one process after a look.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessFigures {
    /// Which.
    pub process: WatchedProcess,
    /// Its threads.
    pub threads: ThreadStates,
    /// Threads that ran or wanted to, on average since the look before.
    pub runnable: f64,
    /// Threads that ran, on average since the look before.
    pub running: f64,
    /// Locks that threads wait for, as they were at the last closer look.
    pub locks: Vec<LockWaits>,
    /// What is the matter with it.
    pub troubles: Vec<WatchEvent>,
}

/// What a watch knows after a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchFigures {
    /// Looks taken.
    pub looks: u64,
    /// Closer looks at single processes among them.
    pub closer_looks: u64,
    /// Trouble found so far, by kind.
    pub found: Vec<(TroubleKind, u64)>,
    /// CPU time of all looks, in microseconds.
    pub cpu_us: u64,
    /// Of it, that of closer looks.
    pub closer_cpu_us: u64,
    /// The processes.
    pub processes: Vec<ProcessFigures>,
    /// How many of them may not be looked into.
    pub not_seen: usize,
    /// What could not be seen, and why.
    pub gaps: Vec<Gap>,
}
