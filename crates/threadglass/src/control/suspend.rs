//! Suspending one thread of a live process from the command line.

use super::stopped::{ControlError, StoppedThread};
use crate::threads::SUSPENDER;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A thread held suspended: a [`StoppedThread`] that other observers can tell from a debugger's stop.
#[derive(Debug)]
pub struct Suspended {
    stopped: StoppedThread,
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

impl Suspended {
    /// Suspends thread `lwp` of `pid`, and nothing else. Renames the calling thread for good: its name
    /// is what tells other observers who holds the thread.
    pub fn suspend(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        // Before the stop, so that no observer ever sees it under another name.
        name_suspender();
        StoppedThread::stop(pid, lwp).map(|stopped| Self { stopped })
    }

    /// The same, though a seccomp filter may kill the thread when it goes on.
    pub fn suspend_by_force(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        name_suspender();
        StoppedThread::stop_by_force(pid, lwp).map(|stopped| Self { stopped })
    }

    /// See [`StoppedThread::visible_interruption`].
    pub fn visible_interruption(&self) -> Option<i64> {
        self.stopped.visible_interruption()
    }

    /// Holds the thread until `limit` is over (if there is one), a signal asks us to stop, or the
    /// thread ends; then resumes it. Blocks SIGINT, SIGTERM and SIGHUP for the calling thread.
    pub fn hold(mut self, limit: Option<Duration>) -> Result<HoldEnd, ControlError> {
        let lwp = self.stopped.lwp();
        let failed = |errno| ControlError::System(lwp, errno);
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
            if self.stopped.has_ended() {
                return Ok(HoldEnd::Ended);
            }
        }
    }
}

/// Gives the calling thread the name of one that suspends others.
pub(super) fn name_suspender() {
    if let Ok(name) = std::ffi::CString::new(SUSPENDER) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}
