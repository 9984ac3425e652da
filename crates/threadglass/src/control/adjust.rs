//! Changing a thread's priority and raising signals for it.

use crate::signals::SignalSet;
use crate::sys::task;
use crate::{Lwp, Pid};
use nix::errno::Errno;

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdjustError {
    /// Linux cannot take a pending signal away.
    #[error("a pending signal cannot be removed")]
    CannotRemove,
    /// The kernel refused.
    #[error("the kernel refuses: {0}")]
    Refused(Errno),
}

/// Sets the priority of a thread within its present policy.
pub fn set_priority(lwp: Lwp, priority: i32) -> Result<(), AdjustError> {
    task::set_priority(lwp, priority).map_err(AdjustError::Refused)
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
