//! What is wrong, or keeps others waiting.

use super::words::words;
use crate::{Lwp, Pid, RemoteAddr};

words! {
    /// How sure a finding is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
    pub enum Certainty {
        /// It may end by itself, or rests on more than one conclusion.
        Possible = "possible",
        /// It rests on a conclusion.
        Likely = "likely",
        /// Recorded by the objects and the kernel, and seen not to move.
        Certain = "certain",
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum FindingKind {
    /// Threads that wait for each other in a circle.
    Deadlock,
    /// A thread that waits for what it holds itself.
    SelfDeadlock,
    /// A thread that reads again what it reads already, while a writer waits in between.
    RecursiveRead,
    /// A lock whose owner has ended.
    OwnerExited,
    /// A lock that was held by another thread of the parent at the time of a fork.
    OwnerIsForkParent,
    /// A robust mutex whose owner died.
    OwnerDied,
    /// A condition variable with waiters and nobody seen who could signal: not called a deadlock.
    CondWithoutSignaller,
    /// Anything else that threads wait for inside the process, while no thread is left that could wake them.
    NobodyLeft,
    /// All workers of a pool of threads wait inside tasks, so that nobody is left to run another task.
    PoolStarved,
    /// Tasks of a runtime that wait for each other in a circle, or for what nobody is left to run.
    TaskDeadlock,
    /// A thread that runs the tasks of a runtime has been in one poll for long, in a call that blocks or in a computation.
    BlockedWorker,
    /// A task that waits while it holds a lock that threads block on.
    GuardAcrossAwait,
    /// Processes that wait for each other in a circle, through pipes, sockets, file locks or children.
    ProcessCircle,
    /// Threads that wait, directly or not, for one that waits for nobody we know: a root, with the longest chain to it.
    LongChain,
    /// Threads wait for a lock that is held, and it is not known by whom.
    HolderUnknown,
    /// A lock that threads waited for in several looks, each time in other hands.
    HandedOver,
}

impl FindingKind {
    /// Whether it means that threads hang for ever, when it is certain.
    pub fn is_hang(self) -> bool {
        matches!(
            self,
            Self::Deadlock
                | Self::SelfDeadlock
                | Self::RecursiveRead
                | Self::OwnerExited
                | Self::OwnerIsForkParent
                | Self::ProcessCircle
                | Self::TaskDeadlock
        )
    }

    /// Whether it tells for whom, or for which lock, threads wait, with nothing wrong in it.
    pub fn is_root(self) -> bool {
        matches!(self, Self::LongChain | Self::HolderUnknown | Self::BlockedWorker)
    }

    /// Whether it means that nobody is left to wake threads.
    pub fn is_unwoken(self) -> bool {
        matches!(self, Self::CondWithoutSignaller | Self::NobodyLeft | Self::PoolStarved)
    }
}

/// A thread that a finding is about, or an object without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Member {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub lwp: Option<Lwp>,
    /// The object that it waits for.
    pub object: Option<RemoteAddr>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// How sure.
    pub certainty: Certainty,
    /// The threads it is about; of a circle, each waits for what the next one holds.
    pub threads: Vec<Lwp>,
    /// The objects; of a circle, the one that the thread of the same place waits for.
    pub objects: Vec<RemoteAddr>,
    /// The same in pairs, in the same order, with the process of each.
    pub members: Vec<Member>,
    /// Threads that wait, directly or not, for those.
    pub behind: Vec<Lwp>,
    /// Ids of the tasks that it is about; of a circle, each waits for the next one.
    pub tasks: Vec<u64>,
    /// In how many of the snapshot's looks it was seen.
    pub seen: u32,
    /// In a sentence.
    pub text: String,
}

impl Finding {
    /// Whether threads hang for ever, for sure.
    pub fn is_certain_hang(&self) -> bool {
        (self.kind.is_hang() || self.kind.is_unwoken()) && self.certainty == Certainty::Certain
    }
}
