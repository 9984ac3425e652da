//! Suspending one thread of a live process.

use crate::proc::{SyscallFile, parse_syscall};
use crate::threads::SUSPENDER;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid as NixPid;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Why a thread cannot be suspended.
#[derive(Debug, thiserror::Error)]
pub enum SuspendError {
    /// The thread does not exist, or has gone.
    #[error("process {0} has no thread {1} (`tglass threads {0}` lists those that live)")]
    NoThread(Pid, Lwp),
    /// Somebody else traces it.
    #[error("thread {0} is traced by process {1} already (detach that debugger first)")]
    Traced(Lwp, i32),
    /// Not permitted.
    #[error(
        "not permitted to suspend thread {0} (run as its user, as root, or with CAP_SYS_PTRACE; see `tglass doctor`)"
    )]
    Denied(Lwp),
    /// Anything else.
    #[error("cannot suspend thread {0}: {1} (nothing was changed)")]
    System(Lwp, Errno),
}

/// A thread held suspended. Dropping it resumes the thread, and so does the end of our process in
/// whatever way: the kernel releases what a dead tracer held.
///
/// Must be dropped on the thread that created it (ptrace belongs to threads), so it is not `Send`.
#[derive(Debug)]
pub struct Suspended {
    lwp: Lwp,
    interrupted: Option<i64>,
    released: bool,
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Why a hold came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The time is over.
    Time,
    /// We were asked to stop (Ctrl-C, SIGTERM or SIGHUP).
    Asked,
    /// The thread or its whole process has ended.
    Ended,
}

/// The calls that return EINTR after a stop instead of going on, measured on Linux 6.18.
const NOT_RESTARTED: [i64; 7] = [
    128, // rt_sigtimedwait
    65,  // semop
    220, // semtimedop
    232, // epoll_wait
    281, // epoll_pwait
    441, // epoll_pwait2
    208, // io_getevents
];

impl Suspended {
    /// Stops thread `lwp` of `pid`, and nothing else. Takes over the name of the calling thread
    /// while it lives, so that other observers can tell this stop from a debugger's.
    pub fn suspend(pid: Pid, lwp: Lwp) -> Result<Self, SuspendError> {
        let task = format!("/proc/{pid}/task/{lwp}");
        let read = |name: &str| std::fs::read(format!("{task}/{name}"));
        let status = read("status").map_err(|_| SuspendError::NoThread(pid, lwp))?;
        let tracer = crate::proc::parse_status(&status).map_or(0, |status| status.tracer);
        if tracer != 0 {
            return Err(SuspendError::Traced(lwp, tracer));
        }
        let interrupted = match read("syscall").ok().and_then(|bytes| parse_syscall(&bytes)) {
            Some(SyscallFile::Inside { number, .. }) => Some(number),
            _ => None,
        };
        // Before the seize, so that no observer ever sees the stop under another name.
        let _ = nix::sys::prctl::set_name(&std::ffi::CString::new(SUSPENDER).unwrap_or_default());
        let raw = NixPid::from_raw(lwp.0);
        // SEIZE, never ATTACH: that one sends SIGSTOP, which the program can see.
        ptrace::seize(raw, ptrace::Options::empty()).map_err(|errno| match errno {
            Errno::ESRCH => SuspendError::NoThread(pid, lwp),
            Errno::EPERM => SuspendError::Denied(lwp),
            errno => SuspendError::System(lwp, errno),
        })?;
        let mut guard = Self { lwp, interrupted, released: false, _not_send: std::marker::PhantomData };
        ptrace::interrupt(raw).map_err(|errno| SuspendError::System(lwp, errno))?;
        // A thread in uninterruptible sleep stops only when that sleep ends.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match waitpid(raw, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if Instant::now() > deadline => {
                    return Err(SuspendError::System(lwp, Errno::ETIMEDOUT));
                }
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(50)),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => {
                    guard.released = true;
                    return Err(SuspendError::NoThread(pid, lwp));
                }
                Ok(_) => return Ok(guard),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(SuspendError::System(lwp, errno)),
            }
        }
    }

    /// The thread that is held.
    pub fn lwp(&self) -> Lwp {
        self.lwp
    }

    /// Number of the system call that was interrupted and will return EINTR to the program when
    /// the thread is resumed; `None` when the stop cannot be noticed.
    pub fn visible_interruption(&self) -> Option<i64> {
        self.interrupted.filter(|number| NOT_RESTARTED.contains(number))
    }

    /// Holds the thread until `limit` is over (if there is one), a signal asks us to stop, or the
    /// thread ends; then resumes it. Blocks SIGINT, SIGTERM and SIGHUP for the calling thread.
    pub fn hold(mut self, limit: Option<Duration>) -> Result<HoldEnd, SuspendError> {
        let lwp = self.lwp;
        let failed = |errno| SuspendError::System(lwp, errno);
        let asked: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        asked.thread_block().map_err(failed)?;
        let signals = SignalFd::with_flags(&asked, SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        let started = Instant::now();
        loop {
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(HoldEnd::Time);
            }
            // Awake ten times a second to notice that the thread has gone.
            let nap = left.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
            let timeout = PollTimeout::try_from(nap.max(Duration::from_millis(1))).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(HoldEnd::Asked),
                Err(errno) => return Err(failed(errno)),
            }
            if self.has_ended() {
                return Ok(HoldEnd::Ended);
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        let status = waitpid(NixPid::from_raw(self.lwp.0), Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
        self.released = matches!(status, Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD));
        self.released
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        // Detaching needs a stopped tracee. If the stop never came (an uninterruptible sleep), our
        // exit releases it all the same; nothing is pending that would stop it later.
        let _ = ptrace::detach(NixPid::from_raw(self.lwp.0), None);
    }
}
