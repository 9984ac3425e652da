//! A wait as it was seen, and what a runtime makes of it.

use super::FutexWait;
use super::parking_lot::TablePointers;
use crate::model::{CallSite, Evidence, Family, Side, SyncKind, Thread};
use crate::runtimes::glibc::Layout;
use crate::runtimes::glibc::locks::CondLayout;
use crate::target::Target;
use crate::{InnerTid, RemoteAddr};
use std::cell::OnceCell;
use std::collections::HashSet;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: SyncKind,
    pub(crate) family: Family,
    /// Where the object begins.
    pub(crate) address: RemoteAddr,
    pub(crate) side: Option<Side>,
    pub(crate) evidence: Evidence,
}

impl Class {
    /// An object, whichever side of it is wanted.
    pub(crate) fn new(kind: SyncKind, family: Family, address: RemoteAddr, evidence: Evidence) -> Self {
        Self { kind, family, address, side: None, evidence }
    }

    /// A lock that the program has made of a word.
    pub(crate) fn lock_of_program(address: RemoteAddr) -> Self {
        Self::new(SyncKind::Mutex, Family::Other, address, Evidence::Inferred)
    }

    /// A word of which nothing is known.
    pub(crate) fn word(address: RemoteAddr, evidence: Evidence) -> Self {
        Self::new(SyncKind::Futex, Family::Other, address, evidence)
    }
}

/// A wait of one thread.
pub(crate) struct SeenWait<'a> {
    pub(crate) futex: FutexWait,
    /// The call by which the program entered the C library.
    pub(crate) call: Option<&'a CallSite>,
    /// Whether the system call was made past the C library.
    pub(crate) past_libc: bool,
    /// Whether that call only passes the system call on, and the function that made it has no name.
    pub(crate) is_from_nameless: bool,
    /// Its stack pointer, and the words from there on, as far as they were read.
    pub(crate) sp: RemoteAddr,
    pub(crate) words: &'a [u64],
    /// The first argument of that call, as far as code and registers tell.
    pub(crate) first_argument: &'a dyn Fn() -> Option<RemoteAddr>,
}

/// A function that a waiting thread is in, and the evidence for that.
#[derive(Clone, Copy)]
pub(crate) enum Spot<'a> {
    /// By it the program entered the C library.
    Entry(&'a str, Evidence),
    /// It made the system call by a function that only passes it on.
    Caller(&'a str),
    /// One on the stack of a program that has the C library inside.
    Frame(&'a str, Evidence),
    /// One outside of the C library on the stack of a thread of which the others say nothing: demangled, without the
    /// version of its symbol. `depth` is how many others it called, and those each other, until the system call.
    Outer { function: &'a str, depth: usize, evidence: Evidence },
}

/// What is known of the target.
pub(crate) struct Context<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) layout: Option<&'a Layout>,
    threads: HashSet<InnerTid>,
    /// Descriptors, by which a join and a stream's owner are known.
    ids: HashSet<RemoteAddr>,
    /// Searched for when the first thread waits that may stand in such a table.
    tables: OnceCell<TablePointers>,
}

impl<'a> Context<'a> {
    /// Of `target`, whose threads are these.
    pub(crate) fn new(target: &'a dyn Target, layout: Option<&'a Layout>, threads: &[Thread]) -> Self {
        let ids = threads.iter().filter_map(|thread| Some(thread.id?.0)).collect();
        let threads = threads.iter().filter_map(|thread| thread.inner_lwp).collect();
        Self { target, layout, threads, ids, tables: OnceCell::new() }
    }

    /// Whether the target has a thread of this id.
    pub(crate) fn has_thread(&self, inner: InnerTid) -> bool {
        self.threads.contains(&inner)
    }

    /// Whether a thread's descriptor begins there.
    pub(crate) fn is_descriptor(&self, addr: RemoteAddr) -> bool {
        self.ids.contains(&addr)
    }

    /// Where the target keeps its tables of parked threads.
    pub(super) fn parking_lot_tables(&self) -> &TablePointers {
        self.tables.get_or_init(|| TablePointers::find(self.target))
    }

    pub(crate) fn cond(&self) -> CondLayout {
        self.layout.map_or(CondLayout::Unknown, |layout| layout.cond)
    }
}
