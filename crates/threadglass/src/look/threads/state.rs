//! A thread's state, from the kernel's facts.

use crate::Pid;
use crate::model::{Evidence, Stop, StopKind, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::target::LwpFacts;

/// State of a living LWP and how it is known, or why it is not.
///
/// `suspended` says that the tracer that stops it is one of ours. A debugger's stop is looked
/// through: what counts is what the thread was doing when it was stopped.
pub(super) fn state_of(facts: &LwpFacts, suspended: bool) -> Result<(ThreadState, Evidence), &'static str> {
    use ThreadState::{Active, Sleep, Stopped, StoppedAsleep, Zombie};
    if let Some(known) = facts.running {
        return Ok(known);
    }
    let in_call = facts.syscall.map(|call| matches!(call, SyscallFile::Inside { .. }));
    Ok(match (facts.state, in_call) {
        (KernelState::Zombie | KernelState::Dead, _) => (Zombie, Evidence::Recorded),
        (KernelState::Sleeping | KernelState::DiskSleep | KernelState::Running, _) => match facts.syscall {
            // The two files told of different moments: the later one is true, and it alone has the
            // registers that go with it.
            Some(SyscallFile::Running) => (Active, Evidence::Recorded),
            None if facts.state == KernelState::Running => (Active, Evidence::Recorded),
            _ => (Sleep, Evidence::Recorded),
        },
        (KernelState::Traced, Some(true)) if !suspended => (Sleep, Evidence::Derived),
        (KernelState::Traced, Some(false)) if !suspended => (Active, Evidence::Derived),
        (KernelState::Traced, None) if !suspended => {
            return Err("a debugger has stopped it, and its registers cannot be read");
        }
        (KernelState::Stopped | KernelState::Traced, Some(true)) => (StoppedAsleep, Evidence::Derived),
        (KernelState::Stopped, None) => (Stopped, Evidence::Inferred),
        (KernelState::Stopped | KernelState::Traced, _) => (Stopped, Evidence::Recorded),
        (KernelState::Other(_), _) => return Err("the kernel reports a state unknown to this version"),
    })
}

/// What keeps an LWP stopped. `by` is the name of its tracer.
pub(super) fn stop_of(facts: &LwpFacts, suspended: bool, by: Option<&[u8]>) -> Option<Stop> {
    let kind = match facts.state {
        KernelState::Stopped => return Some(Stop::new(StopKind::JobControl)),
        KernelState::Traced if suspended => StopKind::Suspended,
        KernelState::Traced => StopKind::Traced,
        _ => return None,
    };
    let by = by.map(|name| String::from_utf8_lossy(name).into_owned());
    Some(Stop { by, pid: (facts.tracer != 0).then_some(Pid(facts.tracer)), ..Stop::new(kind) })
}
