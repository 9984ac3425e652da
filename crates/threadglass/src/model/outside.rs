//! Waits that leave the process.

use super::words::words;
use super::{Evidence, Thread};
use crate::{Lwp, Pid};

words! {
    /// What a thread can wait for outside of its process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
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
        /// The disk or another device, where no signal wakes the thread.
        Disk = "disk",
    }
}

words! {
    /// Which way the bytes go that a thread waits for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum Direction {
        /// It wants to read, and nothing is there.
        Input = "input",
        /// It wants to write, and there is no room.
        Output = "output",
    }
}

/// A process that a thread of another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Partner {
    /// Which.
    pub pid: Pid,
    /// Its name.
    pub name: Option<String>,
    /// How it is known.
    pub evidence: Evidence,
    /// What it does, in words, where that is one thing.
    pub doing: Option<String>,
    /// The thread that is at the other end, where that can be told: one that waits there itself, or the only one. Its stack is
    /// among the snapshot's `strangers`.
    pub lwp: Option<Lwp>,
}

/// A thread of another process that a wait leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Stranger {
    /// Its process.
    pub pid: Pid,
    /// The name of the process.
    pub process: Option<String>,
    /// The thread, with its stack.
    pub thread: Thread,
}

/// A wait that leaves the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct OutsideWait {
    /// What for.
    pub kind: OutsideKind,
    /// Which way, where it is for bytes.
    pub direction: Option<Direction>,
    /// Whether it ends by itself after some time.
    pub timed: bool,
    /// How many descriptors an event loop watches.
    pub watched: Option<usize>,
    /// What is at the descriptor: `unix socket to /run/db.sock`, a path.
    pub what: Option<String>,
    /// Bytes that were sent and that the other side has not read, where that is known.
    pub unread: Option<u64>,
    /// The process that owes an answer: it was sent something, and has not answered.
    pub owed_by: Option<Pid>,
    /// The function of the kernel that the thread sleeps in, of a wait for the disk.
    pub wait_channel: Option<String>,
    /// Who could end it. Several where it is not known which one.
    pub partners: Vec<Partner>,
    /// In words: `the other end is open in nginx (pid 4711), which ..`.
    pub text: String,
}

impl OutsideWait {
    /// Whether somebody else is to do something: owes an answer, does not read what was sent, or holds a file lock. Who reads
    /// without that waits for work that may come.
    pub fn is_owed(&self) -> bool {
        let is_full = self.direction == Some(Direction::Output) && !self.partners.is_empty();
        !self.timed && (self.owed_by.is_some() || is_full || self.kind == OutsideKind::FileLock)
    }

    /// A wait of which no more is known.
    pub(crate) fn new(kind: OutsideKind, text: String) -> Self {
        let (direction, timed, watched, what, unread, owed_by, wait_channel) = Default::default();
        Self { kind, direction, timed, watched, what, unread, owed_by, wait_channel, partners: Vec::new(), text }
    }
}
