//! What is wrong with the processes of a machine.

use super::{Gap, SCHEMA, Verdict};
use crate::Pid;

/// All processes of a machine, and those of them that are worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Machine {
    /// Version of what is printed: [`SCHEMA`].
    pub schema: &'static str,
    /// Number of processes that were looked at.
    pub processes: usize,
    /// Number of their threads.
    pub threads: usize,
    /// Number of descriptors of pipes, sockets and files that were looked at: none where no wait led to any.
    pub descriptors: usize,
    /// Number of processes whose locks were read, because threads of them wait on locks.
    pub opened: usize,
    /// Number of processes that may not be looked into.
    pub not_seen: usize,
    /// CPU time of the look at all processes, in microseconds.
    pub survey_us: u64,
    /// CPU time of reading locks, in microseconds.
    pub locks_us: u64,
    /// Processes that are worth a look, the worst first.
    pub processes_to_see: Vec<ProcessToSee>,
    /// What could not be seen, and why.
    pub gaps: Vec<Gap>,
}

impl Default for Machine {
    fn default() -> Self {
        let (processes, threads, descriptors, opened, not_seen, survey_us, locks_us) = Default::default();
        let (processes_to_see, gaps) = Default::default();
        Self {
            schema: SCHEMA,
            processes,
            threads,
            descriptors,
            opened,
            not_seen,
            survey_us,
            locks_us,
            processes_to_see,
            gaps,
        }
    }
}

/// A process that is worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ProcessToSee {
    /// Which.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// What it does.
    pub verdict: Verdict,
    /// The other processes of the circle that it is in: they are not listed again.
    pub circle: Vec<Pid>,
    /// Processes that wait for it, directly or not.
    pub behind: Vec<Pid>,
}
