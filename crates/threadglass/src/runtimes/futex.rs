//! What a blocked thread told the kernel about its wait.

use crate::RemoteAddr;
use crate::arch::syscall::{FUTEX, FUTEX_WAIT, RESTART_SYSCALL};
use crate::proc::SyscallFile;

const COMMAND: u64 = 127;
const PRIVATE: u64 = 128;
const REALTIME: u64 = 256;

/// The commands of futex(2) that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexOp {
    /// While the word has a value.
    Wait,
    /// Likewise, for some wakers only. With all bits set, which is usual, no different.
    WaitBitset,
    /// Until the kernel makes the waiter the owner.
    LockPi,
    /// To be moved to a priority-inheriting lock.
    WaitRequeuePi,
}

/// A thread's wait on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FutexWait {
    /// The word.
    pub word: RemoteAddr,
    /// How it waits.
    pub op: FutexOp,
    /// Whether only threads of the same process can wake it.
    pub private: bool,
    /// Whether a deadline would be one of the wall clock. libc's newer waits say so without a deadline too.
    pub realtime: bool,
    /// The value the word had.
    pub value: u32,
    /// Whether the wait ends by itself.
    pub timed: bool,
    /// Whether the call was restarted after a stop, so that it is not certain to be a futex call at all.
    pub restarted: bool,
}

impl FutexWait {
    /// Whether libc sleeps here in place of locking a mutex, which this thread can never have: on a word of its own that
    /// is 0. The word of a mutex is not 0 while a thread waits for it.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.op == FutexOp::WaitBitset && self.value == 0
    }

    /// The wait of a thread that is blocked in `call`; `None` when it is not in such a call.
    pub fn of(call: &SyscallFile) -> Option<Self> {
        let SyscallFile::Inside { number, args, .. } = call else { return None };
        Self::in_call(*number, args)
    }

    /// The wait of a thread that is blocked in the system call `number` with `args`; `None` when that is another call.
    pub fn in_call(number: i64, args: &[u64; 6]) -> Option<Self> {
        let (word, how, value, deadline) = match number {
            FUTEX | RESTART_SYSCALL => (args[0], args[1], args[2], args[3]),
            // word, value, mask, flags (size in the low bits), deadline
            FUTEX_WAIT => (args[0], args[3] & PRIVATE, args[1], args[4]),
            _ => return None,
        };
        let op = match how & COMMAND {
            0 => FutexOp::Wait,
            9 => FutexOp::WaitBitset,
            6 | 13 => FutexOp::LockPi,
            11 => FutexOp::WaitRequeuePi,
            _ => return None,
        };
        // What only looks like one: the registers are those of some other call.
        let is_other = how & !(COMMAND | PRIVATE | REALTIME) & 0xffff_ffff != 0 || word % 4 != 0 || word < 4096;
        if is_other && number != FUTEX_WAIT {
            return None;
        }
        let restarted = number == RESTART_SYSCALL;
        Some(Self {
            word: RemoteAddr(word),
            op,
            private: how & PRIVATE != 0,
            realtime: how & REALTIME != 0,
            value: value as u32,
            timed: restarted || deadline != 0,
            restarted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::syscall::READ;

    fn call(number: i64, args: [u64; 6]) -> SyscallFile {
        SyscallFile::Inside { number, args, sp: RemoteAddr::NULL, pc: RemoteAddr::NULL }
    }

    #[test]
    fn futex_calls_that_wait() {
        let wait = FutexWait::of(&call(FUTEX, [0x5000, 0x80, 0xffff_ffff_8000_0002, 0, 0, 0])).unwrap();
        assert_eq!((wait.op, wait.private, wait.value, wait.timed), (FutexOp::Wait, true, 0x8000_0002, false));
        let wait = FutexWait::of(&call(FUTEX, [0x5000, 393, 0, 0x7000, 0, 0xffff_ffff])).unwrap();
        assert_eq!((wait.op, wait.realtime, wait.timed), (FutexOp::WaitBitset, true, true));
        assert_eq!(FutexWait::of(&call(FUTEX, [0x5000, 0x81, 1, 0, 0, 0])), None, "a wake");
        assert_eq!(FutexWait::of(&call(READ, [0x5000, 0x80, 2, 0, 0, 0])), None, "a read");
    }

    #[test]
    fn restarted_calls_are_not_taken_for_what_they_are_not() {
        assert!(FutexWait::of(&call(RESTART_SYSCALL, [0x5000, 0x189, 0, 0x7000, 0, 0])).unwrap().timed);
        assert_eq!(FutexWait::of(&call(RESTART_SYSCALL, [1, 0, 0x7000, 0x7000, 0, 0])), None, "clock_nanosleep");
    }
}
