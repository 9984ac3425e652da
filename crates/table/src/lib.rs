//! The layout of lock statistics: the agent writes it inside a program, the library reads it from outside.
//!
//! Five areas of anonymous memory, which the kernel fills with zeros and commits as they are used:
//!
//! - the **index**, an open hash of 32-bit numbers that leads from an address to an entry ([`probes`]);
//! - the **entries**, taken one after the other ([`Entry`]): 64 bytes an object, 128 for a rwlock;
//! - the **extras**, for objects that threads have waited for: a histogram and who waited where ([`Extra`]);
//! - the **words**, for mutexes of the usual sort: their latest counts ([`words`]);
//! - the **stacks**, a ring: where some of the threads were that have waited ([`WaitStack`]).
//!
//! All of them are wiped in a forked child, which so begins its own counts. The [`Header`] tells where they are. It
//! is a symbol of the agent ([`HEADER_SYMBOL`]), so that whoever can look up symbols finds it, in a core file too.
//!
//! # What a reader may rely on
//!
//! Nothing is locked. A number of an entry only grows while the entry stands for the same object, and is written by
//! one store, so each one read is one that was true. An entry that comes to stand for another object changes its
//! [`key`](Entry::key) first, so a copy is of one object if the key was the same before and after ([`decode`]).
#![no_std]

pub mod control;
pub mod counts;
pub mod decode;
pub mod find;
mod key;
mod layout;
mod library;
pub mod size;
pub mod words;

pub use find::{FoundEntry, Store, find_or_insert, probes};
pub use key::{Key, Kind};
pub use layout::{
    CONTROLLERS, CondBody, Entry, Extra, HAS_WORD, HISTOGRAM, Header, LEASE, MutexBody, RwlockBody, RwlockMore, SITES,
    STACK_EVERY, STACK_WORDS, SemaBody, Site, SpinBody, WaitStack, bucket,
};
pub use library::{Language, Library};

/// Name of the agent's exported [`Header`].
pub const HEADER_SYMBOL: &str = "threadglass_agent";

/// First bytes of a [`Header`].
pub const MAGIC: [u8; 8] = *b"TGAGENT\0";

/// Changes with everything that is not the same for a reader.
pub const VERSION: u32 = 4;

/// Bytes of an entry's unit.
pub const UNIT: usize = 64;

/// Values of [`Header::state`].
pub mod state {
    /// The constructor has not run.
    pub const NEW: u32 = 0;
    /// There is a table.
    pub const READY: u32 = 1;
    /// There is none: no memory, or a C library that is not understood. Calls are forwarded.
    pub const REFUSED: u32 = 2;
}

/// Values of [`Header::mode`].
pub mod mode {
    /// Calls are forwarded.
    pub const OFF: u32 = 0;
    /// All are counted, waits are timed, one hold in 64 is timed.
    pub const SAMPLED: u32 = 1;
    /// Every hold is timed.
    pub const EXACT: u32 = 2;
}

/// Values of [`Header::clock`].
pub mod clock {
    /// Times are nanoseconds of `CLOCK_MONOTONIC`.
    pub const NANOSECONDS: u32 = 0;
    /// Times are ticks of the processor's time stamp counter; the pairs of the header tell how long one is.
    pub const TICKS: u32 = 1;
}
