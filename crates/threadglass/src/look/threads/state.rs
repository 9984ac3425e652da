//! A thread's state, from the kernel's facts.

use crate::Pid;
use crate::model::{Evidence, Stop, StopKind, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::target::LwpFacts;

/// State of a living LWP, how it is known, and the reason when it is not.
///
/// `suspended` says that the tracer that stops it is one of ours. A debugger's stop is looked
/// through: what counts is what the thread was doing when it was stopped.
pub(super) fn state_of(facts: &LwpFacts, suspended: bool) -> (ThreadState, Evidence, Option<&'static str>) {
    use ThreadState::{Active, Sleep, Stopped, StoppedAsleep, Unknown, Zombie};
    let in_call = facts.syscall.map(|call| matches!(call, SyscallFile::Inside { .. }));
    if let Some((state, evidence)) = facts.running {
        return (state, evidence, None);
    }
    match facts.state {
        KernelState::Zombie | KernelState::Dead => (Zombie, Evidence::Recorded, None),
        KernelState::Sleeping | KernelState::DiskSleep | KernelState::Running => match facts.syscall {
            // The two files told of different moments: the later one is true, and it alone has the
            // registers that go with it.
            Some(SyscallFile::Running) => (Active, Evidence::Recorded, None),
            Some(SyscallFile::Inside { .. }) => (Sleep, Evidence::Recorded, None),
            Some(SyscallFile::Outside { .. }) => (Sleep, Evidence::Recorded, None),
            None if facts.state == KernelState::Running => (Active, Evidence::Recorded, None),
            None => (Sleep, Evidence::Recorded, None),
        },
        KernelState::Stopped => match in_call {
            Some(true) => (StoppedAsleep, Evidence::Derived, None),
            Some(false) => (Stopped, Evidence::Recorded, None),
            None => (Stopped, Evidence::Inferred, None),
        },
        KernelState::Traced if suspended => match in_call {
            Some(true) => (StoppedAsleep, Evidence::Derived, None),
            _ => (Stopped, Evidence::Recorded, None),
        },
        KernelState::Traced => match in_call {
            Some(true) => (Sleep, Evidence::Derived, None),
            Some(false) => (Active, Evidence::Derived, None),
            None => (Unknown, Evidence::Unknown, Some("a debugger holds it, and what it was doing may not be read")),
        },
        KernelState::Other(_) => {
            (Unknown, Evidence::Unknown, Some("the kernel reports a state unknown to this version"))
        }
    }
}

/// What keeps an LWP stopped. `by` is the name of its tracer.
pub(super) fn stop_of(facts: &LwpFacts, suspended: bool, by: Option<&[u8]>) -> Option<Stop> {
    let kind = match facts.state {
        KernelState::Stopped => return Some(Stop { kind: StopKind::JobControl, by: None, pid: None }),
        KernelState::Traced if suspended => StopKind::Suspended,
        KernelState::Traced => StopKind::Traced,
        _ => return None,
    };
    let by = by.map(|name| String::from_utf8_lossy(name).into_owned());
    Some(Stop { kind, by, pid: (facts.tracer != 0).then_some(Pid(facts.tracer)) })
}
