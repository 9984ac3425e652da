//! Synchronization objects: what threads wait for, and who holds it.

use super::words::{Word, words};
use super::{Evidence, TaskRef};
use crate::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};

words! {
    /// What a thread can wait for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum SyncKind {
        /// One holder at a time.
        Mutex = "mutex",
        /// Waited on until somebody signals.
        Cond = "cond",
        /// Many readers or one writer.
        Rwlock = "rwlock",
        /// A count.
        Semaphore = "semaphore",
        /// Waited on until enough threads have come.
        Barrier = "barrier",
        /// A mutex whose waiters spin.
        Spinlock = "spinlock",
        /// Something that is initialised once.
        Once = "once",
        /// The end of a thread.
        Join = "join",
        /// Values go through it from task to task.
        Channel = "channel",
        /// Waited on until a count is 0.
        #[cfg_attr(feature = "serde", serde(rename = "waitgroup"))]
        WaitGroup = "waitgroup",
        /// A thread that parked itself until another one wakes it.
        Park = "park",
        /// A word that threads wait on, of which no more is known.
        Futex = "futex",
    }
}

/// Whose object it is, which decides its layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum Family {
    /// POSIX threads, and what is built on them (C11, C++).
    Pthread,
    /// A lock that libc keeps for itself: of a stream, of the allocator.
    Libc,
    /// POSIX threads of musl, and what is built on them.
    Musl,
    /// A lock that musl keeps for itself.
    MuslInside,
    /// Rust's standard library.
    RustStd,
    /// The `parking_lot` crate.
    ParkingLot,
    /// C++'s atomic waits, and what libstdc++ builds on them.
    Cxx,
    /// GLib.
    Glib,
    /// libgomp, OpenMP's library of gcc.
    Gomp,
    /// Qt.
    Qt,
    /// Abseil.
    Absl,
    /// oneTBB.
    Tbb,
    /// A lock of Python's module `threading`, or one that the interpreter is built with.
    Python,
    /// The lock of a Python interpreter, which one of its threads has at a time.
    Gil,
    /// A Java monitor, or where Java code has parked a thread.
    Java,
    /// Where JavaScript code waits.
    JavaScript,
    /// Go's package `sync`, and its channels.
    Go,
    /// What tasks of tokio wait for each other by.
    Tokio,
    /// Where a language's runtime lets its own threads wait for work.
    Runtime,
    /// Not known.
    #[default]
    Other,
}

/// The kinds of `PTHREAD_MUTEX_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum MutexType {
    /// Relocking it deadlocks.
    Normal,
    /// May be locked again by its owner.
    Recursive,
    /// Relocking it is an error.
    Errorcheck,
    /// Spins before it sleeps.
    Adaptive,
}

/// How a mutex treats the priority of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum MutexProtocol {
    /// Leaves it alone.
    None,
    /// The owner inherits its waiters' priority.
    Inherit,
    /// The owner runs at the mutex's ceiling.
    Protect,
}

/// Who is let in first by a rwlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum Preference {
    /// Readers, also while writers wait.
    Reader,
    /// Writers, but threads that hold it for reading may do so again.
    Writer,
    /// Writers: reading again while one waits deadlocks.
    WriterNonrecursive,
}

impl SyncKind {
    /// Whether who waits for it wants to go on and is kept from it by another thread, rather than having nothing to do.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::Rwlock | Self::Spinlock | Self::Once)
    }
}

words! {
    /// The state of an object in one word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum SyncState {
        /// Nobody holds it.
        Unlocked = "unlocked",
        /// Held.
        Locked = "locked",
        /// A rwlock held by readers.
        ReadLocked = "read-locked",
        /// A rwlock held by a writer.
        WriteLocked = "write-locked",
        /// A robust mutex whose owner died, and nobody has taken it since.
        OwnerDied = "owner died",
        /// A robust mutex taken after its owner died, and not yet declared consistent.
        Inconsistent = "inconsistent",
        /// A robust mutex that was given up for good.
        NotRecoverable = "not recoverable",
        /// Destroyed.
        Destroyed = "destroyed",
        /// A semaphore that can be taken.
        Available = "available",
        /// A semaphore that cannot.
        Exhausted = "exhausted",
        /// A condition variable or barrier with threads in it.
        Waiting = "waiting",
        /// One without.
        Idle = "idle",
        /// A once that nobody has begun.
        New = "new",
        /// A once that somebody is at.
        InProgress = "in progress",
        /// A once that is done.
        Done = "done",
        /// A thread, to be joined, that has not ended.
        Running = "running",
        /// One that has.
        Exited = "exited",
        /// Not known, or nothing but a number.
        Unknown = "unknown",
    }
}

impl SyncState {
    /// Whether somebody holds it.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Locked | Self::ReadLocked | Self::WriteLocked | Self::Inconsistent | Self::InProgress)
    }
}

/// What only objects of one kind have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(untagged))]
pub enum Detail {
    /// Of a mutex.
    Mutex {
        /// Its type.
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        kind: MutexType,
        /// Whether it survives the death of its owner.
        robust: bool,
        /// What it does to priorities.
        protocol: MutexProtocol,
        /// Acquisitions by the owner beyond the first.
        recursion: u32,
        /// Priority ceiling, of a priority-protecting one.
        ceiling: Option<u8>,
    },
    /// Of a condition variable.
    Cond {
        /// Threads inside a wait, as the object counts them.
        inside: u32,
        /// The mutex that its waiters gave up and will take again.
        mutex: Option<RemoteAddr>,
    },
    /// Of a rwlock.
    Rwlock {
        /// Who is preferred.
        preference: Preference,
        /// Threads that hold it for reading.
        readers: u32,
        /// Whether a writer is queued.
        writer_queued: bool,
    },
    /// Of a semaphore.
    Semaphore {
        /// How often it can be taken.
        count: u32,
    },
    /// Of a barrier.
    Barrier {
        /// Threads it waits for.
        needed: u32,
        /// Threads that have come in this round.
        arrived: u32,
    },
    /// Of a channel.
    Channel {
        /// Values in it.
        queued: u64,
        /// Values that have room in it.
        capacity: u64,
        /// Whether it is closed.
        closed: bool,
    },
    /// Of a wait group.
    WaitGroup {
        /// How many are not done yet.
        left: i32,
    },
    /// Of a word.
    Futex {
        /// What it holds.
        value: u32,
    },
    /// Nothing more.
    None {},
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Side {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

/// What a holder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum HolderStatus {
    /// A living thread of the target.
    Alive,
    /// A thread that does not exist any more, or never did here.
    Gone,
    /// A thread of the process that this one was forked from.
    ForkParent,
    /// A thread of another process.
    OtherProcess,
    /// It cannot be told.
    #[default]
    Unknown,
}

/// Who holds an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Holder {
    /// Its LWP; of one that is gone, the number that the object has.
    pub lwp: Option<Lwp>,
    /// Its thread.
    pub thread: Option<PthreadId>,
    /// The id that the object holds, as the target sees it.
    pub recorded: Option<InnerTid>,
    /// The process it belongs to, where that is another one.
    pub pid: Option<Pid>,
    /// Of a rwlock: how it holds it.
    pub side: Option<Side>,
    /// What it is.
    pub status: HolderStatus,
    /// How it is known.
    pub evidence: Evidence,
    /// What leads to it, where it is inferred.
    pub why: Option<String>,
}

/// Who waits for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Waiter {
    /// Its LWP.
    pub lwp: Lwp,
    /// Its thread.
    pub thread: Option<PthreadId>,
    /// The process it belongs to, where that is another one.
    pub pid: Option<Pid>,
    /// Of a rwlock: what it wants.
    pub side: Option<Side>,
    /// Whether its wait ends by itself.
    pub timed: bool,
    /// Whether it was seen not to move while the object was read.
    pub stable: bool,
    /// How it is known that it waits for this object.
    pub evidence: Evidence,
}

/// A synchronization object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct SyncObject {
    /// Where it begins.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
    /// How the kind is known.
    pub evidence: Evidence,
    /// A name: a variable, a member of a type, or where it lies.
    pub name: Option<String>,
    /// Bytes it takes; `None` where that depends on what is not known.
    pub size: Option<u64>,
    /// Whether other processes may share it.
    pub shared: Option<bool>,
    /// Its state.
    pub state: SyncState,
    /// What only its kind has.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub detail: Detail,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who waits for it.
    pub waiters: Vec<Waiter>,
    /// Tasks that hold it.
    pub holding_tasks: Vec<TaskRef>,
    /// Tasks that wait for it.
    pub waiting_tasks: Vec<TaskRef>,
    /// What was counted of it, where there is an agent in the program that does.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stats: Option<super::SyncStats>,
}

impl SyncObject {
    /// What it is called, where its kind is not what a user of it knows.
    pub fn noun(&self) -> Option<&'static str> {
        Some(match (self.family, self.kind) {
            (Family::Gil, ..) => "the GIL",
            (Family::Python, SyncKind::Mutex) => "Python RLock",
            (Family::Python, SyncKind::Cond) => "Python queue",
            (Family::Python, ..) => "Python lock",
            (Family::Java, SyncKind::Mutex | SyncKind::Cond) => "Java monitor",
            (Family::Runtime, _) => "work of the runtime's own",
            _ => return None,
        })
    }

    /// Whether its noun tells all that a person wants to know: there is no other one.
    pub fn is_known_by_noun(&self) -> bool {
        matches!(self.family, Family::Gil | Family::Runtime)
    }

    /// An object of which no more than this is known yet.
    pub fn bare(address: RemoteAddr, kind: SyncKind, family: Family, evidence: Evidence) -> Self {
        Self {
            address,
            kind,
            family,
            evidence,
            name: None,
            stats: None,
            size: None,
            shared: None,
            state: SyncState::Unknown,
            detail: Detail::None {},
            holders: Vec::new(),
            waiters: Vec::new(),
            holding_tasks: Vec::new(),
            waiting_tasks: Vec::new(),
        }
    }
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct WaitsFor {
    /// The object's address.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Its name.
    pub name: Option<String>,
    /// What it waits for in words, where functions on its stack tell more than the kind: `to receive from a channel ..`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::maybe_known"))]
    pub how: Option<Word>,
    /// Of a rwlock: what it wants.
    pub side: Option<Side>,
    /// Whether the wait ends by itself.
    pub timed: bool,
    /// How long it has been waiting, at least, in milliseconds.
    pub since_ms: Option<u64>,
    /// LWPs of those who hold it.
    pub held_by: Vec<Lwp>,
    /// How it is known.
    pub evidence: Evidence,
}

/// What a thread holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Holds {
    /// The object's address.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Its name.
    pub name: Option<String>,
    /// Of a rwlock: how.
    pub side: Option<Side>,
    /// How it is known.
    pub evidence: Evidence,
}
