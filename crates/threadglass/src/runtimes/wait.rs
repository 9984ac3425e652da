//! A wait as it was seen, and what a runtime makes of it.

use super::FutexWait;
use super::hotspot::JavaThreads;
use super::languages::{Loaded, loaded};
use super::parking_lot::TablePointers;
use super::qt::Release as QtRelease;
use crate::model::{CallSite, Evidence, Family, Side, SyncKind, Thread};
use crate::runtimes::glibc::locks::CondLayout;
use crate::runtimes::{LibcLayout, glibc, musl};
use crate::target::{Language, Target};
use crate::{InnerTid, Lwp, RemoteAddr};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

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

    /// Whether a time limit does not end a wait for the object.
    pub(crate) fn keeps_waiting(&self) -> bool {
        super::of(self.family).keeps_waiting(self.kind, self.family)
    }

    /// Whether `word` is a part of the object.
    pub(crate) fn contains(&self, word: RemoteAddr) -> bool {
        let size = super::of(self.family).bytes_of(self.kind, self.family) as u64;
        word.0.wrapping_sub(self.address.0) < size
    }

    /// A word of which nothing is known.
    pub(crate) fn word(address: RemoteAddr, evidence: Evidence) -> Self {
        Self::new(SyncKind::Futex, Family::Other, address, evidence)
    }
}

/// A wait of one thread.
pub(crate) struct SeenWait<'a> {
    pub(crate) futex: FutexWait,
    pub(crate) lwp: Lwp,
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
    /// The second one.
    pub(crate) second_argument: &'a dyn Fn() -> Option<RemoteAddr>,
    /// The first argument of the call in the frame of this number outside of the C library.
    pub(crate) argument_in: &'a dyn Fn(usize) -> Option<RemoteAddr>,
    /// Its stack outside of the C library.
    pub(crate) outside: &'a dyn Fn() -> OutsideLibc,
}

/// What a waiting thread has on its stack outside of the C library.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutsideLibc {
    /// Where it is in functions, the innermost first.
    pub(crate) frames: Vec<RemoteAddr>,
    /// The names of the innermost of these functions, demangled: their own, and those by which they were called.
    pub(crate) functions: Vec<[Option<String>; 2]>,
    /// The words from its stack pointer on: more of them than every wait is asked for.
    pub(crate) words: Vec<u64>,
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
    /// Where its C library keeps what, if that is known.
    pub(crate) libc: Option<LibcLayout<'a>>,
    threads: HashMap<InnerTid, Option<Lwp>>,
    names: HashMap<Lwp, String>,
    /// Descriptors, by which a join and a stream's owner are known.
    ids: HashSet<RemoteAddr>,
    /// Searched for when the first thread waits that may stand in such a table.
    tables: OnceCell<TablePointers>,
    languages: OnceCell<Vec<Loaded>>,
    java: OnceCell<Option<JavaThreads>>,
    qt: OnceCell<Option<QtRelease>>,
}

impl<'a> Context<'a> {
    /// Of `target`, whose threads are these.
    pub(crate) fn new(target: &'a dyn Target, libc: Option<LibcLayout<'a>>, threads: &[Thread]) -> Self {
        let of_threads = threads;
        let ids = threads.iter().filter_map(|thread| Some(thread.id?.0)).collect();
        let threads = threads.iter().filter_map(|thread| Some((thread.inner_lwp?, thread.lwp))).collect();
        let names = of_threads.iter().filter_map(|thread| Some((thread.lwp?, thread.name.clone()?))).collect();
        Self {
            target,
            libc,
            threads,
            names,
            ids,
            tables: OnceCell::new(),
            languages: OnceCell::new(),
            java: OnceCell::new(),
            qt: OnceCell::new(),
        }
    }

    /// Whether the target has a thread of this id.
    pub(crate) fn has_thread(&self, inner: InnerTid) -> bool {
        self.threads.contains_key(&inner)
    }

    /// Whether a thread's descriptor begins there.
    pub(crate) fn is_descriptor(&self, addr: RemoteAddr) -> bool {
        self.ids.contains(&addr)
    }

    /// The thread of this id.
    pub(super) fn lwp_of(&self, inner: InnerTid) -> Option<Lwp> {
        self.threads.get(&inner).copied().flatten()
    }

    /// The name of a thread.
    pub(super) fn name_of(&self, lwp: Lwp) -> Option<&str> {
        self.names.get(&lwp).map(String::as_str)
    }

    /// A language that the target has loaded.
    pub(super) fn language(&self, language: Language) -> Option<&Loaded> {
        let loaded = self.languages.get_or_init(|| loaded(self.target));
        loaded.iter().find(|it| it.language == language)
    }

    /// The threads that Java knows.
    pub(super) fn java_threads(&self) -> Option<&JavaThreads> {
        let find = || JavaThreads::find(self, self.language(Language::Java)?);
        self.java.get_or_init(find).as_ref()
    }

    /// How the Qt that the target has loaded lays out its locks.
    pub(super) fn qt(&self) -> Option<QtRelease> {
        *self.qt.get_or_init(|| QtRelease::of(self.target))
    }

    /// Where the target keeps its tables of parked threads.
    pub(super) fn parking_lot_tables(&self) -> &TablePointers {
        self.tables.get_or_init(|| TablePointers::find(self.target))
    }

    pub(crate) fn cond(&self) -> CondLayout {
        self.glibc().map_or(CondLayout::Unknown, |layout| layout.cond)
    }

    /// The layout of its glibc, if it has that.
    pub(crate) fn glibc(&self) -> Option<&'a glibc::Layout> {
        match self.libc {
            Some(LibcLayout::Glibc(layout)) => Some(layout),
            _ => None,
        }
    }

    /// The layout of its musl, if it has that.
    pub(crate) fn musl(&self) -> Option<&'a musl::Layout> {
        match self.libc {
            Some(LibcLayout::Musl(layout)) => Some(layout),
            _ => None,
        }
    }
}
