//! What can be looked at: a live process, a core, what a debugger shows, and plain bytes.
//!
//! A target is a bundle of small capabilities. [`Memory`] and [`Symbols`] are enough to find glibc
//! and its threads; [`KernelFacts`] adds what only the kernel knows. Live processes have all three.

mod access;
mod announced;
mod bytes;
mod core;
mod facts;
mod live;
mod module;
mod service;
mod symbols;

pub use self::core::{Core, CoreError, CoreFault, CoreOptions};
#[doc(hidden)]
pub use crate::arch::GeneralRegisters;
#[doc(hidden)]
pub use crate::proc::SchedCounters;
#[doc(hidden)]
pub use ::table::{Language, Library};
pub use access::Denial;
pub(crate) use access::{
    CAP_CHECKPOINT_RESTORE, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, has_capability, yama_scope,
};
#[doc(hidden)]
pub use announced::SYMBOLS;
#[doc(hidden)]
pub use bytes::Bytes;
pub(crate) use facts::as_made;
#[doc(hidden)]
pub use facts::{Anchor, Elsewhere, Hint, KernelFacts, LwpFacts, OutsideWaker};
pub use live::{KeptFacts, Live};
pub(crate) use live::{ProcessPulse, ThreadPulse, calls_of_all, name_and_start, pulse};
pub use module::Module;
pub use service::{KnownProcess, ProcService, RoutineFailed, Service, ThreadList};

use crate::limits::Limits;
use crate::memory::Memory;
use crate::model::{CoreInfo, Gap, Remedy, SignalSet};
use crate::proc::{MapEntry, StackLimit};
use crate::{InnerTid, Lwp, Pid, RemoteAddr};
use std::fs::File;

/// Global symbols of the inspected process, in whichever object they are.
pub trait Symbols {
    /// Address of `name`, or `None` when no object has it.
    fn address_of(&self, name: &str) -> Option<RemoteAddr>;
}

/// Who a target is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the main thread.
    pub name: String,
    /// Path of the executable, as the target sees it.
    pub exe: Option<String>,
    /// User.
    pub uid: Option<u32>,
    /// Whether it has a pid namespace of its own.
    pub in_pid_namespace: bool,
    /// Signals pending for the process as a whole; `None` where that is not recorded.
    pub shared_pending: Option<SignalSet>,
    /// Who traces its main thread.
    pub tracer: Option<i32>,
    /// Of a core file: where it comes from.
    pub core: Option<CoreInfo>,
}

/// A whole target, as a look at its threads needs it: its memory and symbols, what the kernel knows,
/// and the files it has mapped.
pub trait Target: Memory + Symbols + KernelFacts + Sync {
    /// Its pid.
    fn pid(&self) -> Pid;

    /// Who it is.
    fn identity(&self) -> Identity;

    /// What looking at it may cost.
    fn limits(&self) -> &Limits;

    /// Why its memory may not be read, or `None` when it may.
    fn denial(&self) -> Option<Denial> {
        None
    }

    /// Whether it still is what was opened. Always so for what cannot change.
    fn check_identity(&self) -> Result<(), TargetError> {
        Ok(())
    }

    /// Its mappings, in address order; empty when they cannot be had.
    fn maps(&self) -> &[MapEntry];

    /// Of the mapping that holds `addr`: its end, and how much room there is from `top` down to the mapping
    /// below it, `size` at most.
    fn room_below(&self, addr: RemoteAddr, top: RemoteAddr, size: u64) -> Option<(RemoteAddr, u64)> {
        room_in(self.maps(), addr, top, size)
    }

    /// Mapped files that may be objects, in address order.
    fn modules(&self) -> &[Module];

    /// Whether `module` is the program itself.
    fn is_program(&self, module: &Module) -> bool;

    /// The file that is mapped as `module`; `None` when none can be shown to be that file.
    fn open_module(&self, module: &Module) -> Option<File>;

    /// Soft limit of the main thread's stack.
    fn stack_limit(&self) -> Option<StackLimit>;

    /// Where the main thread's stack pointer stood at the program's start.
    fn initial_stack(&self) -> Option<RemoteAddr> {
        None
    }

    /// Whether its ids differ from those it sees itself, because it has a pid namespace of its own.
    fn is_namespaced(&self) -> bool {
        false
    }

    /// The thread that the target itself knows as `inner`.
    fn lwp_of_inner(&self, inner: InnerTid) -> Option<Lwp> {
        Some(Lwp(inner.0))
    }

    /// Whether facts of many threads come at little more than the price of a few, so that a caller who
    /// will need all of them should ask for all at once.
    fn gives_facts_in_bulk(&self) -> bool {
        false
    }

    /// Another process on the same machine, with which this one shares memory; `None` where there is no such
    /// thing, or it cannot be looked at.
    fn other(&self, _pid: Pid) -> Option<Box<dyn Target>> {
        None
    }

    /// What this kind of target cannot tell of any process.
    fn losses(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// The module that holds `addr`.
    fn module_at(&self, addr: RemoteAddr) -> Option<&Module> {
        // An object may lie in a hole of another object.
        self.modules().iter().rev().find(|module| module.contains(addr))
    }

    /// Whether `addr` lies in libc, or in one of the libraries that were split from it before 2.34.
    fn is_in_libc(&self, addr: RemoteAddr) -> bool {
        self.module_at(addr).is_some_and(|module| module.library().is_libc())
    }
}

/// [`Target::room_below`], from a list of all mappings.
fn room_in(maps: &[MapEntry], addr: RemoteAddr, top: RemoteAddr, size: u64) -> Option<(RemoteAddr, u64)> {
    let index = maps.iter().position(|map| map.contains(addr))?;
    let below = index.checked_sub(1).map_or(0, |index| maps[index].end.0);
    Some((maps[index].end, top.0.checked_sub(below)?.min(size)))
}

/// Why a target cannot be looked at (at all, or any further).
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such process.
    #[error("no process {0} (it may have ended; `ps -e` lists the processes)")]
    NoSuchProcess(Pid),
    /// The number belongs to a thread.
    #[error("{tid} is a thread, not a process (it belongs to process {pid})")]
    IsThread {
        /// The number given.
        tid: i32,
        /// The process it belongs to.
        pid: Pid,
    },
    /// It has exited; only its record is left.
    #[error("process {0} is a zombie: it has ended, and its parent {1} has not collected it (look at the parent)")]
    Zombie(Pid, Pid),
    /// A thread of the kernel.
    #[error("{0} is a kernel thread: it has no memory or threads to look at (try `cat /proc/{0}/stack` as root)")]
    KernelThread(Pid),
    /// It went away while we looked.
    #[error("process {0} has ended")]
    Exited(Pid),
    /// It executes another program now.
    #[error("process {0} executed another program during the look (run again)")]
    Execed(Pid),
    /// Its thread-specific data cannot be read at all.
    #[error("cannot see the thread-specific data of process {pid}: {why}")]
    NoTsd {
        /// The process.
        pid: Pid,
        /// Why.
        why: String,
        /// What to do.
        remedy: Option<Remedy>,
    },
    /// Its synchronization objects cannot be read at all.
    #[error("cannot see the locks of process {pid}: {why}")]
    NoLocks {
        /// The process.
        pid: Pid,
        /// Why, and what to do.
        why: String,
    },
    /// There is no synchronization object at an address.
    #[error("no lock at {address}: {why}")]
    NoObject {
        /// The address.
        address: RemoteAddr,
        /// Why not.
        why: String,
        /// What to do.
        remedy: Option<Remedy>,
    },
    /// `/proc` does not answer.
    #[error("cannot read {what}: {errno} (is /proc mounted, and does hidepid hide the process? try as root)")]
    Proc {
        /// Which file.
        what: String,
        /// The system's answer.
        errno: nix::errno::Errno,
    },
}

impl TargetError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match *self {
            Self::IsThread { pid, .. } => Some(Remedy::LookAtProcess { pid }),
            Self::NoTsd { remedy, .. } | Self::NoObject { remedy, .. } => remedy,
            _ => None,
        }
    }
}
