//! Changing a thread's priority and raising signals for it.

use crate::model::SignalSet;
use crate::sys::{sched, task};
use crate::{Lwp, Pid};
use nix::errno::Errno;

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdjustError {
    /// Linux cannot take a pending signal away.
    #[error("Linux cannot remove a pending signal")]
    CannotRemove,
    /// The kernel refused.
    #[error("the kernel refuses: {0}")]
    Refused(Errno),
}

/// Sets the priority of a thread of `pid` within its present policy. The kernel takes any thread's id, and the process may
/// have lied about this one: so the thread must be one of its own.
pub fn set_priority(pid: Pid, lwp: Lwp, priority: i32) -> Result<(), AdjustError> {
    if !std::path::Path::new(&format!("/proc/{pid}/task/{lwp}")).exists() {
        return Err(AdjustError::Refused(Errno::ESRCH));
    }
    sched::set_priority(lwp, priority).map_err(AdjustError::Refused)
}

/// Makes the set of signals pending for a thread equal to `wanted`, given that it is `pending` now.
/// Raises what is missing; refuses, and changes nothing, when one would have to be removed. A signal
/// that the thread does not block is delivered at once, as by `pthread_kill`.
pub fn raise_signals(pid: Pid, lwp: Lwp, pending: SignalSet, wanted: SignalSet) -> Result<(), AdjustError> {
    if pending.0 & !wanted.0 != 0 {
        return Err(AdjustError::CannotRemove);
    }
    SignalSet(wanted.0 & !pending.0)
        .iter()
        .try_for_each(|signal| task::send_signal(pid, lwp, signal).map_err(AdjustError::Refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_another_process_keeps_its_priority() {
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let lwp = Lwp(other.id() as i32);
        // The priority that it has: what is refused is the thread.
        assert_eq!(set_priority(Pid::me(), lwp, 0), Err(AdjustError::Refused(Errno::ESRCH)));
        assert_eq!(set_priority(Pid(lwp.0), lwp, 0), Ok(()));
        let _ = other.kill();
        let _ = other.wait();
    }
}
