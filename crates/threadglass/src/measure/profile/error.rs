//! Why there is no profile.

use crate::Pid;
use crate::model::Remedy;
use crate::perf::SamplingError;
use crate::target::{Denial, TargetError};

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The process may not be looked at.
    #[error("cannot profile process {0}: {1}")]
    Denied(Pid, Denial),
    /// Its threads cannot be sampled.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// What was asked for is not in the process.
    #[error("{0}")]
    Region(String, Option<Remedy>),
    /// The clock of a command is used up.
    #[error("a command can be recorded only once (start it again)")]
    Recorded,
    /// The command could not be started.
    #[error("cannot start {0}: {1}")]
    Launch(String, std::io::Error),
}

impl ProfileError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Target(error) => error.remedy(),
            Self::Region(_, remedy) => *remedy,
            _ => None,
        }
    }
}
