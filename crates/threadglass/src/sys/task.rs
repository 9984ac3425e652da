//! One thread of another process, by its id.

use crate::proc::{Status, parse_status};
use crate::{Lwp, Pid};
use nix::errno::Errno;

/// What the kernel says of a thread now; `None` if there is none.
pub(crate) fn status_of(pid: Pid, lwp: Lwp) -> Option<Status> {
    parse_status(&std::fs::read(format!("/proc/{pid}/task/{lwp}/status")).ok()?)
}

/// Sends a signal to one thread.
pub(crate) fn send_signal(pid: Pid, lwp: Lwp, signal: u32) -> Result<(), Errno> {
    // SAFETY: tgkill takes three integers and touches no memory of ours.
    let rc = unsafe { libc::syscall(crate::arch::syscall::TGKILL, pid.0, lwp.0, signal) };
    Errno::result(rc).map(drop)
}
