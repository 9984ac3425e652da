//! What the threads of a process did with their time.

use super::{Evidence, Gap, TargetInfo};
use crate::Lwp;

/// Averages of a whole process over an interval.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ProcessStats {
    /// The runtimes whose tasks are its threads here; empty where those are the threads of the C library.
    pub tasks_of: Vec<&'static str>,
    /// Threads, or tasks, at its end.
    pub nthreads: usize,
    /// What `pthread_getconcurrency` would return in it, or how many tasks may run at one time; `None` where that cannot be read.
    pub r_concurrency: Option<i32>,
    /// Threads that ran or waited for a CPU, and tasks that could run and had no thread, on average.
    pub nrunnable: f64,
    /// Threads that ran, on average.
    pub a_concurrency: f64,
    /// LWPs, on average.
    pub nlwps: f64,
    /// LWPs that neither ran nor waited for a CPU, on average.
    pub nidle: f64,
    /// Threads that were seen, and ended in the interval. Those that live for a few ms are seen only by chance.
    pub ended: u64,
    /// CPU time of threads that are not listed, because they ended, in per cent of the interval.
    pub ended_cpu: f64,
}

/// What one thread did, in per cent of the interval. A thread that began in it has less than 100 in all.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ThreadStats {
    /// Which.
    pub lwp: Lwp,
    /// Its name.
    pub name: Option<String>,
    /// On a CPU.
    pub cpu: f64,
    /// Waiting for a CPU.
    pub runqueue: f64,
    /// Waiting for a mutex, rwlock, semaphore or the like; `None` where that cannot be told.
    pub lock: Option<f64>,
    /// Asleep otherwise; with the waits for locks where those cannot be told.
    pub sleep: f64,
}

/// Statistics of a process over an interval.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Stats {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// Which process.
    pub target: TargetInfo,
    /// When the interval ended, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// For how long the process was stopped for this: not at all.
    pub pause_us: u64,
    /// Its length in milliseconds.
    pub interval_ms: u64,
    /// How often threads were looked at in it.
    pub samples: u64,
    /// How the times on and for a CPU are known: from the kernel's counters.
    pub evidence: Evidence,
    /// How the waits for locks are known: from the samples.
    pub lock_evidence: Evidence,
    /// The process as a whole.
    pub process: ProcessStats,
    /// Its threads, the busiest first.
    pub threads: Vec<ThreadStats>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}
