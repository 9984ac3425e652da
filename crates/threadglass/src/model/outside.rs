//! Waits that leave the process.

use super::Evidence;
use super::words::words;
use crate::Pid;

words! {
    /// What a thread can wait for outside of its process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum OutsideKind {
        /// A pipe or FIFO.
        Pipe = "pipe",
        /// A socket.
        Socket = "socket",
        /// A lock on a file.
        FileLock = "file lock",
        /// A child process.
        Child = "child",
        /// Input from a terminal, or that it takes output.
        Terminal = "terminal",
        /// A time.
        Timer = "timer",
        /// A signal.
        Signal = "signal",
        /// Any of several descriptors: how servers wait for work.
        EventLoop = "event loop",
        /// A connection to a listening socket.
        Connection = "connection",
        /// Completions of io_uring or of asynchronous input and output.
        Completion = "completion",
        /// The count of an eventfd.
        Eventfd = "eventfd",
        /// Changes of files.
        Inotify = "inotify",
        /// A message queue of System V or POSIX.
        MessageQueue = "message queue",
        /// A semaphore of System V.
        Semaphore = "semaphore",
        /// A file or device.
        File = "file",
    }
}

/// A process that a thread of another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Partner {
    /// Which.
    pub pid: Pid,
    /// Its name.
    pub name: Option<String>,
    /// How it is known.
    pub evidence: Evidence,
    /// What it does, in words, where that is one thing.
    pub doing: Option<String>,
}

/// A wait that leaves the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct OutsideWait {
    /// What for.
    pub kind: OutsideKind,
    /// Who could end it. Several where it is not known which one.
    pub partners: Vec<Partner>,
    /// In words: `the other end is open in nginx (pid 4711), which ..`.
    pub text: String,
}
