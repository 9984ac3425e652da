//! How a thread is scheduled. musl has these functions for their names only: they refuse, because POSIX means processes
//! by them where the kernel means threads. So the kernel is asked itself.

use crate::Lwp;
use crate::arch::syscall;
use nix::errno::Errno;

/// The calling thread.
#[cfg(feature = "agent")]
pub(crate) const OWN: Lwp = Lwp(0);

/// The policy of a thread.
#[cfg(feature = "agent")]
pub(crate) fn policy(lwp: Lwp) -> Result<i32, Errno> {
    // SAFETY: the kernel takes a number and touches no memory of ours.
    Errno::result(unsafe { libc::syscall(syscall::SCHED_GETSCHEDULER, lwp.0) }).map(|policy| policy as i32)
}

/// The priority of a thread within its policy.
#[cfg(feature = "agent")]
pub(crate) fn priority(lwp: Lwp) -> Result<i32, Errno> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes a structure of one int, which lives through the call.
    Errno::result(unsafe { libc::syscall(syscall::SCHED_GETPARAM, lwp.0, &raw mut priority) }).map(|_| priority)
}

/// Sets both.
#[cfg(feature = "agent")]
pub(crate) fn set_policy(lwp: Lwp, policy: i32, priority: i32) -> Result<(), Errno> {
    // SAFETY: the kernel reads a structure of one int, which lives through the call.
    Errno::result(unsafe { libc::syscall(syscall::SCHED_SETSCHEDULER, lwp.0, policy, &raw const priority) }).map(drop)
}

/// Sets the priority within the thread's present policy.
pub(crate) fn set_priority(lwp: Lwp, priority: i32) -> Result<(), Errno> {
    // SAFETY: the kernel reads a structure of one int, which lives through the call.
    Errno::result(unsafe { libc::syscall(syscall::SCHED_SETPARAM, lwp.0, &raw const priority) }).map(drop)
}
