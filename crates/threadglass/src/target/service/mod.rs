//! A process as a debugger shows it: memory, symbols and registers through the debugger's routines, on one thread; what
//! only the kernel knows from the live process, where that was shown to be the same, and else from the registers.

mod kernel;

use super::Identity;
use super::{Live, Module, Symbols, Target, TargetError};
use crate::arch::GeneralRegisters;
use crate::limits::Limits;
use crate::memory::{Memory, MemoryWrite, PAGE, ReadError, ReadErrorKind, read_pieces};
use crate::proc::{MapEntry, StackLimit};
use crate::{InnerTid, Lwp, Pid, RemoteAddr};
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// A routine of the debugger has failed, or there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the debugger's function failed")]
pub struct RoutineFailed;

/// What a debugger offers of one process (`<proc_service.h>`). [`Service`] uses it only on the thread on which it was
/// made itself, and a call may leave by an exception: whoever calls holds nothing that others wait for.
pub trait ProcService: Sync {
    /// The pid, where the debugger tells.
    fn pid(&self) -> Option<Pid>;

    /// Reads all of `buf`, or fails.
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), RoutineFailed>;

    /// Writes all of `bytes`, or fails.
    fn write(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), RoutineFailed>;

    /// The address of a global symbol; `None` when no object has it.
    fn look_up(&self, name: &str) -> Result<Option<RemoteAddr>, RoutineFailed>;

    /// The general registers of an LWP.
    fn registers(&self, lwp: Lwp) -> Result<GeneralRegisters, RoutineFailed>;
}

/// Knows where a program's threads are in its memory.
pub trait ThreadList: Sync {
    /// Their LWPs.
    fn lwps(&self, memory: &dyn Memory) -> Option<Vec<Lwp>>;
}

/// What is known of a debugger's process beforehand.
#[derive(Clone, Copy)]
pub struct KnownProcess<'a> {
    /// The live process behind it, once that was shown to be the same.
    pub live: Option<&'a Live>,
    /// Lists its threads: no routine of a debugger does.
    pub list: &'a dyn ThreadList,
}

/// Which routines have failed.
#[derive(Default)]
struct Failures {
    /// Any read, including one of memory that is not mapped.
    read: AtomicBool,
    look_up: AtomicBool,
    /// A routine that should not have failed.
    wrong: AtomicBool,
}

/// A debugger's process, for the time of one call.
pub struct Service<'a, S> {
    debugger: S,
    /// The only thread that may call the debugger's routines.
    thread: ThreadId,
    known: Option<KnownProcess<'a>>,
    lwps: OnceLock<Vec<Lwp>>,
    failures: Failures,
    limits: Limits,
}

impl<'a, S: ProcService> Service<'a, S> {
    /// One of which nothing is known yet.
    pub fn new(debugger: S) -> Self {
        Self {
            debugger,
            thread: thread::current().id(),
            known: None,
            lwps: OnceLock::new(),
            failures: Failures::default(),
            limits: Limits::default(),
        }
    }

    /// One of which `known` is known.
    pub fn knowing(debugger: S, known: KnownProcess<'a>) -> Self {
        Self { known: Some(known), ..Self::new(debugger) }
    }

    /// Whether a read has failed, including one of memory that is not mapped.
    pub fn has_failed_to_read(&self) -> bool {
        self.failures.read.load(Ordering::Relaxed)
    }

    /// Whether a symbol could not be looked up. Some debuggers say so of symbols that do not exist.
    pub fn has_failed_to_look_up(&self) -> bool {
        self.failures.look_up.load(Ordering::Relaxed)
    }

    /// Whether a routine has failed that should not have: what was learned since is not all there is.
    pub fn has_failed(&self) -> bool {
        self.failures.wrong.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.failures.wrong.store(true, Ordering::Relaxed);
    }

    fn debugger(&self) -> Option<&S> {
        if thread::current().id() != self.thread {
            self.fail();
            return None;
        }
        Some(&self.debugger)
    }

    fn live(&self) -> Option<&'a Live> {
        self.known?.live
    }
}

impl<S: ProcService> Memory for Service<'_, S> {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let len = buf.len();
        let nothing = |kind| Err(ReadError { addr, len, kind });
        let Some(debugger) = self.debugger() else { return nothing(ReadErrorKind::Denied) };
        if len == 0 || debugger.read(addr, buf).is_ok() {
            return Ok(len);
        }
        self.failures.read.store(true, Ordering::Relaxed);
        // A debugger reads all or nothing; what there is up to the end of a mapping is wanted.
        let read = read_pieces(addr, buf, |at, rest| {
            let piece = (PAGE - at as usize % PAGE).min(rest.len());
            debugger.read(RemoteAddr(at), &mut rest[..piece]).map_or(0, |()| piece)
        });
        // Every piece is there: it was the debugger that failed.
        if read == Ok(len) {
            self.fail();
            return nothing(ReadErrorKind::Unmapped);
        }
        read
    }
}

impl<S: ProcService> MemoryWrite for Service<'_, S> {
    fn write_at(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), ReadError> {
        let written = self.debugger().ok_or(RoutineFailed).and_then(|debugger| debugger.write(addr, bytes));
        written.map_err(|_| ReadError { addr, len: bytes.len(), kind: ReadErrorKind::Denied })
    }
}

impl<S: ProcService> Symbols for Service<'_, S> {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        let found = self.debugger()?.look_up(name);
        found.inspect_err(|_| self.failures.look_up.store(true, Ordering::Relaxed)).ok()?
    }
}

impl<S: ProcService> Target for Service<'_, S> {
    fn pid(&self) -> Pid {
        match self.live() {
            Some(live) => live.pid(),
            None => self.debugger().and_then(ProcService::pid).unwrap_or(Pid(0)),
        }
    }

    fn identity(&self) -> Identity {
        self.live().map_or_else(Identity::default, Target::identity)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn check_identity(&self) -> Result<(), TargetError> {
        self.live().map_or(Ok(()), |live| live.check_identity())
    }

    fn maps(&self) -> &[MapEntry] {
        self.live().map_or(&[], |live| live.maps())
    }

    fn modules(&self) -> &[Module] {
        self.live().map_or(&[], Target::modules)
    }

    fn is_program(&self, module: &Module) -> bool {
        self.live().is_some_and(|live| live.is_program(module))
    }

    fn open_module(&self, module: &Module) -> Option<File> {
        self.live()?.open_module(module)
    }

    fn stack_limit(&self) -> Option<StackLimit> {
        self.live()?.stack_limit()
    }

    fn initial_stack(&self) -> Option<RemoteAddr> {
        self.live()?.initial_stack()
    }

    fn is_namespaced(&self) -> bool {
        self.live().is_some_and(Target::is_namespaced)
    }

    fn lwp_of_inner(&self, inner: InnerTid) -> Option<Lwp> {
        self.live().map_or(Some(Lwp(inner.0)), |live| live.lwp_of_inner(inner))
    }

    fn gives_facts_in_bulk(&self) -> bool {
        self.live().is_some_and(Target::gives_facts_in_bulk)
    }

    fn other(&self, pid: Pid) -> Option<Box<dyn Target>> {
        self.live()?.other(pid)
    }
}
