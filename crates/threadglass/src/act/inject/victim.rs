//! Which thread is stopped for a moment: one that does not notice.

use crate::arch::syscall;
use crate::model::{Snapshot, Stack, Thread, ThreadState};
use crate::target::{Live, Target};
use crate::{Lwp, RemoteAddr};

/// Bytes of its stack that must be free: for the frame by which it finds back, with the largest state of processors.
pub(super) const FREE: u64 = 24 << 10;

/// A thread that could be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) lwp: Lwp,
    /// Its thread pointer.
    pub(super) pointer: RemoteAddr,
    pub(super) stack: Stack,
}

/// How little a thread would notice; `None` if it would.
fn rank(live: &Live, thread: &Thread) -> Option<u8> {
    let call = match (thread.state, &thread.syscall) {
        (ThreadState::Active | ThreadState::Run, _) => return Some(1),
        (ThreadState::Sleep, Some(call)) => call,
        _ => return None,
    };
    const OPERATION: usize = 1;
    const COMMAND: u64 = 0x7f;
    const TIMEOUT: usize = 3;
    match call.number {
        // Begins anew. All but FUTEX_WAIT have no time limit but a point in time.
        syscall::FUTEX if call.args[TIMEOUT] == 0 => Some(0),
        syscall::FUTEX if call.args[OPERATION] & COMMAND != 0 => Some(2),
        syscall::FUTEX => Some(4),
        syscall::PAUSE | syscall::WAIT4 | syscall::RT_SIGSUSPEND | syscall::WAITID => Some(3),
        // Of anything but a socket, which may have a time limit
        syscall::READ => {
            // Its own: those of a leader that has left by pthread_exit are closed, and it may have a table to itself.
            let link = format!("/proc/{}/task/{}/fd/{}", live.pid(), thread.lwp?, call.args[0] as u32);
            let link = std::fs::read_link(link).ok()?;
            (!link.as_os_str().as_encoded_bytes().starts_with(b"socket:")).then_some(3)
        }
        // How much time is left is remembered.
        syscall::POLL | syscall::NANOSLEEP | syscall::CLOCK_NANOSLEEP => Some(4),
        _ => None,
    }
}

/// The threads that could be stopped, the best first. None but those that stand on a stack of their own are: what is
/// below the stack of a coroutine may be another's.
pub(super) fn candidates(live: &Live, snapshot: &Snapshot) -> Vec<Victim> {
    let mut found: Vec<(u8, Victim)> = snapshot
        .threads
        .iter()
        .filter(|thread| !thread.exiting && !thread.db_suspended)
        .filter_map(|thread| {
            let rank = rank(live, thread)?;
            let victim = Victim { lwp: thread.lwp?, pointer: thread.id?.0, stack: thread.stack? };
            let fits = thread.sp.is_none_or(|sp| victim.has_room(live, sp));
            Some((rank, victim)).filter(|_| fits)
        })
        .collect();
    found.sort_by_key(|(rank, victim)| (*rank, victim.lwp));
    found.into_iter().map(|(_, victim)| victim).collect()
}

impl Victim {
    /// Whether there is room below `sp`, on its own stack, in memory that is there already.
    pub(super) fn has_room(&self, live: &Live, sp: RemoteAddr) -> bool {
        let lowest = self.stack.base.0.saturating_sub(self.stack.size);
        let Some(end) = sp.0.checked_sub(FREE) else { return false };
        let map = crate::proc::map_at(live.maps(), sp);
        sp <= self.stack.base && end >= lowest && map.is_some_and(|map| map.write && map.start.0 <= end)
    }
}
