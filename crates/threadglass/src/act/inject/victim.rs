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

/// Bytes of a descriptor of the C library's, from the thread pointer on: fewer than any has.
const DESCRIPTOR: u64 = 0x800;

/// Whether a word is the C library's own: in its data, or in a thread's descriptor (the end of a thread is awaited there).
fn is_of_libc(live: &Live, snapshot: &Snapshot, word: RemoteAddr) -> bool {
    let is_in = |thread: &Thread| thread.id.is_some_and(|id| word.0.wrapping_sub(id.0.0) < DESCRIPTOR);
    live.module_at(word).is_some_and(|module| module.library().is_libc()) || snapshot.threads.iter().any(is_in)
}

/// How little a thread would notice; `None` if it would.
///
/// A stop takes a thread out of its system call, and the call begins anew when the thread goes on. A futex wait looks at its
/// word again then. The C library expects that of its own words. A program that has changed a word of its own under a
/// thread that waits (a mutex that is initialised again) may not: such a thread comes last.
fn rank(live: &Live, snapshot: &Snapshot, thread: &Thread) -> Option<u8> {
    let call = match (thread.state, &thread.syscall) {
        (ThreadState::Active | ThreadState::Run, _) => return Some(1),
        (ThreadState::Sleep, Some(call)) => call,
        _ => return None,
    };
    const OPERATION: usize = 1;
    const COMMAND: u64 = 0x7f;
    const TIMEOUT: usize = 3;
    match call.number {
        // All but FUTEX_WAIT have no time limit but a point in time.
        syscall::FUTEX if call.args[TIMEOUT] == 0 && is_of_libc(live, snapshot, RemoteAddr(call.args[0])) => Some(0),
        syscall::FUTEX if call.args[TIMEOUT] == 0 => Some(4),
        syscall::FUTEX if call.args[OPERATION] & COMMAND != 0 => Some(5),
        syscall::FUTEX => Some(6),
        syscall::PAUSE | syscall::WAIT4 | syscall::RT_SIGSUSPEND | syscall::WAITID => Some(2),
        // Of anything but a socket, which may have a time limit
        syscall::READ => (!is_socket(live, thread.lwp?, call.args[0])).then_some(2),
        // How much time is left is remembered.
        syscall::POLL | syscall::NANOSLEEP | syscall::CLOCK_NANOSLEEP => Some(3),
        _ => None,
    }
}

/// Whether a descriptor of a thread may be a socket. Its own is asked: those of a leader that has left by pthread_exit are
/// closed, and a thread may have a table to itself.
pub(super) fn is_socket(live: &Live, lwp: Lwp, descriptor: u64) -> bool {
    let link = std::fs::read_link(format!("/proc/{}/task/{lwp}/fd/{}", live.pid(), descriptor as u32));
    link.map_or(true, |link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
}

/// The threads that could be stopped, the best first. None but those that stand on a stack of their own are: what is
/// below the stack of a coroutine may be another's.
pub(super) fn candidates(live: &Live, snapshot: &Snapshot) -> Vec<Victim> {
    let mut found: Vec<(u8, Victim)> = snapshot
        .threads
        .iter()
        .filter(|thread| !thread.exiting && !thread.db_suspended)
        .filter_map(|thread| {
            let rank = rank(live, snapshot, thread)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;
    use crate::look::{Names, Scope, look};
    use testkit::{Fixture, wait_asleep};

    /// The program's own word comes last: a thread that waits for it looks at it again after a stop.
    #[test]
    fn a_thread_that_waits_for_a_lock_of_the_program_is_the_last_to_be_stopped() {
        let fixture = Fixture::new("bystanders.c");
        let lwp = |role: &str| Lwp(fixture.truth()[role].as_i64().unwrap() as i32);
        wait_asleep(fixture.pid(), fixture.pid());
        let live = Live::open(Pid(fixture.pid())).unwrap();
        let snapshot = look(&live, Scope::Threads, Names::None).unwrap();
        let order: Vec<Lwp> = candidates(&live, &snapshot).iter().map(|victim| victim.lwp).collect();
        assert_eq!(order, ["joins", "main", "sleeps", "waits"].map(lwp), "{:?}", fixture.truth());
    }
}
