//! One thread of a live process, stopped for as long as a guard lives.

use crate::act::seccomp::{danger_of_stop, may_restart};
use crate::arch::syscall::{EPOLL_PWAIT, EPOLL_PWAIT2, EPOLL_WAIT, IO_GETEVENTS, RT_SIGTIMEDWAIT, SEMOP, SEMTIMEDOP};
use crate::arch::{GeneralRegisters, Restart};
use crate::model::{Remedy, SignalSet};
use crate::proc::{Status, SyscallFile, parse_stat, parse_syscall};
use crate::sys::cgroup::frozen;
use crate::sys::ptrace::{Change, RegisterSet, get_registers, go_on, poll_change, set_registers, set_signal_mask};
use crate::sys::task::status_of;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid as NixPid;
use std::time::{Duration, Instant};

/// Why a thread cannot be acted upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The thread does not exist, or has gone.
    #[error("process {0} has no thread {1}")]
    NoThread(Pid, Lwp),
    /// Somebody else traces it.
    #[error("thread {0} is already traced by {1} (detach that debugger first)")]
    Traced(Lwp, i32),
    /// Not permitted.
    #[error("not permitted to stop thread {0} (run as its user, as root, or with CAP_SYS_PTRACE)")]
    Denied(Lwp),
    /// A stop might kill it.
    #[error("thread {0} was not stopped, because its seccomp filters might then kill it: {1}")]
    Filtered(Lwp, String),
    /// Its control group is frozen. What thaws it.
    #[error("thread {0} is frozen by its control group and cannot be stopped ({1})")]
    Frozen(Lwp, String),
    /// Anything else.
    #[error("cannot stop or change thread {0}: {1}")]
    System(Lwp, Errno),
}

impl ControlError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match *self {
            Self::NoThread(pid, _) => Some(Remedy::ListThreads { pid }),
            Self::Denied(_) => Some(Remedy::CheckAccess),
            _ => None,
        }
    }
}

/// A stopped thread. Dropping the guard lets it go on, and so does the end of our process in
/// whatever way: the kernel releases what a dead tracer held.
///
/// ptrace belongs to threads, so a guard must stay on the thread that made it: it is not `Send`.
#[derive(Debug)]
pub struct StoppedThread {
    pid: Pid,
    lwp: Lwp,
    interrupted: Option<i64>,
    asked: Instant,
    /// Whether it has seccomp filters.
    filtered: bool,
    released: bool,
    _not_send: std::marker::PhantomData<*const ()>,
}

/// The calls that return EINTR after a stop instead of going on, measured on Linux 6.18. (recv with a
/// time limit belongs here too, but cannot be told from one without.)
const NOT_RESTARTED: [i64; 7] =
    [SEMOP, RT_SIGTIMEDWAIT, IO_GETEVENTS, SEMTIMEDOP, EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2];

/// How long a thread may take to stop. Only an uninterruptible sleep delays it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stops at all has usually stopped by then.
const PROMPT: Duration = Duration::from_millis(20);

/// Waits a little for a change that usually comes at once: a sleep, however short, would last longer. But the thread may
/// want this very CPU, and needs more than moments of it if we have a real-time priority: the longer it takes already,
/// the longer the naps.
pub(crate) fn nap(begun: Instant) {
    match begun.elapsed() {
        short if short < Duration::from_micros(60) => std::hint::spin_loop(),
        long => std::thread::sleep((long / 2).min(Duration::from_millis(1))),
    }
}

impl StoppedThread {
    /// Stops thread `lwp` of `pid`, and nothing else; but not one that might be killed by that.
    pub fn stop(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        Self::stop_if(pid, lwp, false)
    }

    /// The same, though a seccomp filter may kill the thread for it.
    pub fn stop_by_force(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        Self::stop_if(pid, lwp, true)
    }

    fn stop_if(pid: Pid, lwp: Lwp, by_force: bool) -> Result<Self, ControlError> {
        let task = format!("/proc/{pid}/task/{lwp}");
        let read = |name: &str| std::fs::read(format!("{task}/{name}"));
        let Status { tracer, seccomp, .. } = status_of(pid, lwp).ok_or(ControlError::NoThread(pid, lwp))?;
        if tracer != 0 {
            return Err(ControlError::Traced(lwp, tracer));
        }
        if seccomp != 0
            && !by_force
            && let Some(danger) = danger_of_stop(pid, lwp, seccomp)
        {
            return Err(ControlError::Filtered(lwp, danger));
        }
        let interrupted = match read("syscall").ok().and_then(|bytes| parse_syscall(&bytes)) {
            Some(SyscallFile::Inside { number, .. }) => Some(number),
            _ => None,
        };
        let raw = NixPid::from_raw(lwp.0);
        // SEIZE, never ATTACH: that one sends SIGSTOP, which the program can see.
        ptrace::seize(raw, ptrace::Options::empty()).map_err(|errno| match errno {
            Errno::ESRCH => ControlError::NoThread(pid, lwp),
            Errno::EPERM => ControlError::Denied(lwp),
            errno => ControlError::System(lwp, errno),
        })?;
        let asked = Instant::now();
        let mut guard = Self {
            pid,
            lwp,
            interrupted,
            asked,
            filtered: seccomp != 0,
            released: false,
            _not_send: std::marker::PhantomData,
        };
        ptrace::interrupt(raw).map_err(|errno| ControlError::System(lwp, errno))?;
        let mut has_asked = false;
        loop {
            // Whether it is frozen is asked only of a thread that takes its time: a stop is to be short.
            if !has_asked && asked.elapsed() > PROMPT {
                has_asked = true;
                if let Some(thaw) = frozen(pid, lwp) {
                    return Err(ControlError::Frozen(lwp, thaw));
                }
            }
            match poll_change(lwp) {
                Ok(Change::Stopped) => return Ok(guard),
                Ok(Change::None) if asked.elapsed() > PATIENCE => {
                    return Err(ControlError::System(lwp, Errno::ETIMEDOUT));
                }
                Ok(Change::None) => nap(asked),
                Ok(Change::Ended) => {
                    guard.released = true;
                    return Err(ControlError::NoThread(pid, lwp));
                }
                // A signal was on its way to the thread: hand it over, and wait for our own stop.
                Ok(Change::Signalled(signal)) => go_on(lwp, signal).map_err(|errno| guard.failed(errno))?,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(ControlError::System(lwp, errno)),
            }
        }
    }

    /// When it was asked to stop.
    pub fn asked(&self) -> Instant {
        self.asked
    }

    /// The thread that is stopped.
    pub fn lwp(&self) -> Lwp {
        self.lwp
    }

    /// Number of the system call that was interrupted and will return EINTR to the program when
    /// the thread goes on; `None` when the stop cannot be noticed.
    pub fn visible_interruption(&self) -> Option<i64> {
        self.interrupted.filter(|number| NOT_RESTARTED.contains(number))
    }

    /// Whether the thread has ended although it was stopped (its process was killed).
    pub fn has_ended(&mut self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        match waitid(Id::Pid(NixPid::from_raw(self.lwp.0)), look) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => self.released = true,
            // Ended, in whatever way.
            _ => {
                // A child of our own is for the rest of our program to collect; anything else waits for us.
                if !self.is_child() {
                    let _ = poll_change(self.lwp);
                }
                self.released = true;
            }
        }
        self.released
    }

    /// Whether it is the leader of a process that this process has started.
    fn is_child(&self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        self.lwp == self.pid.leader() && parse_stat(&stat).is_some_and(|stat| stat.parent == Pid::me())
    }

    /// Its registers.
    pub fn registers(&self, set: RegisterSet) -> Result<Vec<u8>, ControlError> {
        get_registers(self.lwp, set).map_err(|errno| self.failed(errno))
    }

    /// Replaces its registers.
    pub fn set_registers(&self, set: RegisterSet, bytes: &[u8]) -> Result<(), ControlError> {
        set_registers(self.lwp, set, bytes).map_err(|errno| self.failed(errno))
    }

    /// Replaces its signal mask.
    pub fn set_signal_mask(&self, mask: SignalSet) -> Result<(), ControlError> {
        set_signal_mask(self.lwp, mask).map_err(|errno| self.failed(errno))
    }

    /// A call with a time limit goes on by another call, `restart_syscall`, which its filters may not allow. Then the same
    /// call is made again, with all of its time: it is one that the thread has come to while it was being stopped.
    fn avoid_restart_syscall(&self) {
        let Ok(bytes) = self.registers(RegisterSet::General) else { return };
        let general = GeneralRegisters::from_bytes(&bytes).filter(|it| it.restart() == Some(Restart::TimeLeft));
        if let Some(general) = general.filter(|_| !self.may_restart()) {
            let _ = self.set_registers(RegisterSet::General, &general.restarting_same().bytes());
        }
    }

    fn may_restart(&self) -> bool {
        let live = crate::target::Live::open(self.pid).ok();
        live.and_then(|live| live.seccomp_filters(self.lwp)).is_some_and(|filters| may_restart(&filters))
    }

    fn failed(&self, errno: Errno) -> ControlError {
        match errno {
            Errno::ESRCH => ControlError::NoThread(self.pid, self.lwp),
            errno => ControlError::System(self.lwp, errno),
        }
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if !self.released {
            if self.filtered {
                self.avoid_restart_syscall();
            }
            // Detaching needs a stopped tracee. If the stop never came (an uninterruptible sleep), our
            // exit releases it all the same; nothing is pending that would stop it later.
            let _ = ptrace::detach(NixPid::from_raw(self.lwp.0), None);
        }
    }
}
