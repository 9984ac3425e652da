//! All general registers of a thread, and what they tell of a system call.

use super::Registers;
use super::registers::IN_USER_REGS;
use crate::RemoteAddr;

/// Words of `struct user_regs_struct`.
const WORDS: usize = 27;

/// Places in `struct user_regs_struct`.
pub(super) mod at {
    pub(crate) const RBP: usize = 4;
    pub(crate) const RAX: usize = 10;
    pub(crate) const ORIG_RAX: usize = 15;
    pub(crate) const RIP: usize = 16;
    pub(crate) const RSP: usize = 19;
    pub(crate) const FS_BASE: usize = 21;
    /// Those of a system call's six arguments: rdi, rsi, rdx, r10, r8, r9.
    pub(crate) const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
}

/// How the kernel takes up a system call again that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// By the same call.
    Same,
    /// By `restart_syscall`, which knows how much of its time is left.
    TimeLeft,
}

/// The general registers in the order of `user_regs_struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralRegisters(pub [u64; WORDS]);

impl GeneralRegisters {
    /// From a `struct user_regs_struct`; `None` when that is not whole.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0.first_chunk::<WORDS>()?;
        Some(Self(words.map(u64::from_le_bytes)))
    }

    /// Those that are saved of a task that does not run; all others are 0.
    pub fn of_task(pc: RemoteAddr, sp: RemoteAddr, fp: Option<RemoteAddr>) -> Self {
        let mut words = [0; WORDS];
        (words[at::RIP], words[at::RSP], words[at::RBP]) = (pc.0, sp.0, fp.map_or(0, |fp| fp.0));
        Self(words)
    }

    /// The same as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Where a walk up the stack begins.
    pub(crate) fn frame(&self) -> Registers {
        Registers { pc: self.pc(), sp: self.sp(), general: IN_USER_REGS.map(|at| Some(self.0[at])) }
    }

    /// The program counter.
    pub fn pc(&self) -> RemoteAddr {
        RemoteAddr(self.0[at::RIP])
    }

    /// The stack pointer.
    pub fn sp(&self) -> RemoteAddr {
        RemoteAddr(self.0[at::RSP])
    }

    /// Where glibc's descriptor of the thread is.
    pub fn thread_pointer(&self) -> RemoteAddr {
        RemoteAddr(self.0[at::FS_BASE])
    }

    /// What a system call has answered.
    pub(crate) fn result(&self) -> i64 {
        self.0[at::RAX] as i64
    }

    /// The system call that led into the kernel; `None` when something else did.
    fn syscall_number(&self) -> Option<i64> {
        Some(self.0[at::ORIG_RAX] as i64).filter(|number| *number >= 0)
    }

    /// How the system call will be taken up again that a stop has interrupted; `None` when none will be.
    pub(crate) fn restart(&self) -> Option<Restart> {
        self.syscall_number()?;
        match self.result() {
            // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
            -514..=-512 => Some(Restart::Same),
            // ERESTART_RESTARTBLOCK
            -516 => Some(Restart::TimeLeft),
            _ => None,
        }
    }

    /// The same, but its system call is made again with all of its time.
    pub(crate) fn restarting_same(mut self) -> Self {
        self.0[at::RAX] = -514_i64 as u64;
        self
    }

    /// Number and arguments of the system call that the thread was asleep in when it was stopped. One that came into the
    /// kernel in another way, or whose call was done, was on its way through the program.
    pub fn asleep_in(&self) -> Option<(i64, [u64; 6])> {
        let is_interrupted = self.restart().is_some() || self.result() == -i64::from(libc::EINTR);
        self.syscall_number().filter(|_| is_interrupted).map(|number| (number, at::ARGUMENTS.map(|at| self.0[at])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::FRAME_POINTER;

    #[test]
    fn words_are_read_in_the_kernels_order() {
        // Each word holds its own index.
        let bytes: Vec<u8> = (0..27u64).flat_map(u64::to_le_bytes).collect();
        let all = GeneralRegisters::from_bytes(&bytes).unwrap();
        assert_eq!(all.bytes(), bytes);
        assert_eq!((all.pc(), all.sp(), all.thread_pointer()), (RemoteAddr(16), RemoteAddr(19), RemoteAddr(21)));
        let frame = all.frame();
        assert_eq!((frame.pc, frame.sp), (RemoteAddr(16), RemoteAddr(19)));
        assert_eq!((frame.get(FRAME_POINTER), frame.get(3), frame.get(15)), (Some(4), Some(5), Some(0)));
        assert_eq!(GeneralRegisters::from_bytes(&bytes[..151]), None);
    }

    #[test]
    fn who_was_interrupted_was_asleep() {
        let mut regs = GeneralRegisters([7; WORDS]);
        for (result, asleep, restart) in [
            (-4_i64, true, None),
            (-512, true, Some(Restart::Same)),
            (-514, true, Some(Restart::Same)),
            (-516, true, Some(Restart::TimeLeft)),
            (-515, false, None),
            (0, false, None),
        ] {
            (regs.0[at::RAX], regs.0[at::ORIG_RAX]) = (result as u64, 202);
            assert_eq!((regs.asleep_in(), regs.restart()), (asleep.then_some((202, [7; 6])), restart));
            regs.0[at::ORIG_RAX] = u64::MAX;
            assert_eq!((regs.asleep_in(), regs.restart()), (None, None));
        }
    }
}
