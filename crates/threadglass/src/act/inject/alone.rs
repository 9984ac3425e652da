//! A program with one thread: its C library forgoes locks and atomic instructions, until there is another thread.
//!
//! The other thread must find nothing half done. So the one thread is stopped only where none of its frames is inside the C
//! library or the loader, and it stays in the system call that makes the new thread until that has created a proper one:
//! by then the C library knows that there are two, the one thread has been told, and both lock. The kernel sees to that
//! (`CLONE_VFORK`), whatever becomes of us. Where memory is not the C library's own affair nobody knows what is half done.

use super::InjectError;
use super::victim::Victim;
use crate::act::StoppedThread;
use crate::arch::{GeneralRegisters, syscall};
use crate::elf::Image;
use crate::look::Look;
use crate::model::StackEnd;
use crate::proc::{SyscallFile, parse_syscall};
use crate::sys::ptrace::RegisterSet;
use crate::target::{Library, Live, Module, Target};
use crate::unwind::{Known, Place, Space, StackWords, Walk, Walker};
use std::cell::RefCell;

/// Functions that do nothing but wait in a system call: whoever is in one has nothing half done.
const WAITS: [&str; 16] = [
    "read",
    "pread64",
    "poll",
    "ppoll",
    "select",
    "pause",
    "sigsuspend",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "wait",
    "waitpid",
    "wait3",
    "wait4",
    "waitid",
];
/// Calls that begin anew after a stop without anybody noticing.
const RESTARTED: [i64; 9] = [
    syscall::READ,
    syscall::PAUSE,
    syscall::WAIT4,
    syscall::WAITID,
    syscall::RT_SIGSUSPEND,
    syscall::POLL,
    syscall::NANOSLEEP,
    syscall::CLOCK_NANOSLEEP,
    syscall::RESTART_SYSCALL,
];
/// Frames of the C library around `main`, and within a function that waits.
const START_FRAMES: usize = 2;
const WAIT_FRAMES: usize = 5;

/// What tells whether the one thread of a program may be stopped where it is.
pub(super) struct Alone<'a> {
    live: &'a Live,
    look: Look<'a>,
    known: RefCell<Known>,
}

impl<'a> Alone<'a> {
    /// For a process with one thread, if its memory is the C library's affair.
    pub(super) fn new(live: &'a Live) -> Result<Self, InjectError> {
        if let Some(module) = own_malloc(live) {
            return Err(InjectError::Misfit(format!(
                "process {} has only one thread, and its malloc is that of {module}: nothing tells when a second thread \
                 may use it",
                live.pid()
            )));
        }
        Ok(Self { live, look: Look::new(live), known: RefCell::default() })
    }

    /// Whether a stop would not be noticed right now. The thread may be elsewhere in a moment.
    pub(super) fn is_stoppable(&self, victim: &Victim) -> bool {
        let file = format!("/proc/{}/task/{}/syscall", self.live.pid(), victim.lwp);
        match std::fs::read(file).ok().and_then(|text| parse_syscall(&text)) {
            Some(SyscallFile::Inside { number, args, .. }) => {
                RESTARTED.contains(&number)
                    && (number != syscall::READ || !super::victim::is_socket(self.live, victim.lwp, args[0]))
            }
            _ => true,
        }
    }

    /// Whether the thread, which is stopped, has nothing of the C library half done.
    pub(super) fn is_safe(&self, stopped: &StoppedThread) -> bool {
        let bytes = stopped.registers(RegisterSet::General).unwrap_or_default();
        let Some(registers) = GeneralRegisters::from_bytes(&bytes).map(|general| general.frame()) else { return false };
        let mut known = self.known.borrow_mut();
        let mut walker = Walker::whole(&self.look.space, &mut known, None);
        let walk = walker.walk(&mut StackWords::live(self.live, registers.sp), registers);
        is_outside(self.live, &self.look.space, &walk)
    }
}

/// Whether no frame is inside the C library or the loader, but for those around `main`, and those of a function that
/// waits.
fn is_outside(live: &Live, space: &Space<'_>, walk: &Walk) -> bool {
    let library = |place: &Place| live.module_at(place.lookup()).map(Module::library);
    let is_inside =
        |place: &Place| library(place).is_some_and(|library| library.is_libc() || library == Library::Loader);
    let name = |place: &Place| space.exported_around(place.lookup().0).map(|(name, _)| name);
    if walk.end != StackEnd::Start {
        return false;
    }
    // The trampoline of signals is the C library's; what lies behind it counts.
    let places: Vec<Place> = walk.places.iter().filter(|place| !place.signal).copied().collect();
    let Some((_start, mut rest)) = places.split_last().filter(|(start, _)| !is_inside(start)) else { return false };
    // Around main.
    let around = rest.iter().rev().take_while(|place| is_inside(place)).count();
    let outermost = rest.last().and_then(name);
    if around == 0 || around > START_FRAMES || outermost.as_deref() != Some("__libc_start_main") {
        return false;
    }
    rest = &rest[..rest.len() - around];
    // A function that waits, and its helpers, which have no names.
    let waiting = rest.iter().take_while(|place| is_inside(place)).count();
    let (inner, rest) = rest.split_at(waiting);
    let is_wait = |name: Option<String>| name.is_none_or(|name| WAITS.contains(&name.trim_start_matches('_')));
    let is_named = inner.last().is_none_or(|place| name(place).is_some());
    waiting <= WAIT_FRAMES && is_named && inner.iter().all(|place| is_wait(name(place))) && !rest.iter().any(is_inside)
}

/// The file whose `malloc` the program uses, if that is not the C library.
fn own_malloc(live: &Live) -> Option<String> {
    let others = live.modules().iter().filter(|module| {
        let library = module.library();
        !library.is_libc() && library != Library::Loader
    });
    let has_one = |module: &&Module| {
        let image = Image::with_symbols(live, module.base, live.limits()).ok();
        image.is_some_and(|image| image.address_of(live, "malloc").is_some())
    };
    others.into_iter().find(has_one).map(Module::name)
}
