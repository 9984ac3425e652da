//! Suspending one thread of a live process from the command line.

use super::stopped::{ControlError, StoppedThread};
use crate::look::threads::SUSPENDER;
use crate::sys::interrupt::Interrupt;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use std::time::{Duration, Instant};

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

impl StoppedThread {
    /// [`Self::stop`], in a way that other observers can tell from a debugger's stop. Renames the calling thread for
    /// good: its name is what tells them who holds the thread.
    pub fn suspend(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        // Before the stop, so that no observer ever sees it under another name.
        name_suspender();
        Self::stop(pid, lwp)
    }

    /// The same, though a seccomp filter may kill the thread when it goes on.
    pub fn suspend_by_force(pid: Pid, lwp: Lwp) -> Result<Self, ControlError> {
        name_suspender();
        Self::stop_by_force(pid, lwp)
    }

    /// Holds the thread until `limit` is over (if there is one), a signal asks us to stop, or the
    /// thread ends; then resumes it. Takes SIGINT, SIGTERM and SIGHUP of the calling thread meanwhile.
    pub fn hold(self, limit: Option<Duration>) -> Result<HoldEnd, ControlError> {
        let lwp = self.lwp();
        let failed = |error: std::io::Error| {
            ControlError::System(lwp, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        };
        let interrupt = Interrupt::watch().map_err(failed)?;
        // Resumed before signals can end us again.
        let mut stopped = self;
        let started = Instant::now();
        loop {
            let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(started.elapsed()));
            if left.is_zero() {
                return Ok(HoldEnd::Time);
            }
            // Awake ten times a second to notice that the thread has gone.
            if interrupt.wait(left.min(Duration::from_millis(100))).is_some() {
                return Ok(HoldEnd::Asked);
            }
            if stopped.has_ended() {
                return Ok(HoldEnd::Ended);
            }
        }
    }
}

/// Gives the calling thread the name of one that suspends others.
pub(super) fn name_suspender() {
    let _ = nix::sys::prctl::set_name(SUSPENDER);
}
