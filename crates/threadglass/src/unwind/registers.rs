//! The registers of one frame, as far as they are known.

use crate::RemoteAddr;

/// Number of the frame pointer in DWARF's order.
pub(super) const RBP: u16 = 6;
/// Number of the stack pointer.
pub(super) const RSP: u16 = 7;
/// Number of the column that holds the return address.
pub(super) const RETURN: u16 = 16;

/// General registers in DWARF's order (rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 .. r15).
const GENERAL: usize = 16;

/// Where each of them stands in `struct user_regs_struct`, in units of eight bytes.
const IN_USER_REGS: [usize; GENERAL] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0];
const USER_RIP: usize = 16;

/// Registers that a function gives back as it found them: rbx, rbp, r12 .. r15.
const PRESERVED: [u16; 6] = [3, RBP, 12, 13, 14, 15];

/// The registers of one frame. Of a thread that was not stopped only `pc` and `sp` are known; a stopped
/// thread and a core have all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Program counter.
    pub pc: RemoteAddr,
    /// Stack pointer.
    pub sp: RemoteAddr,
    /// The general registers in DWARF's order; `None` where unknown. The stack pointer's place is not used.
    pub general: [Option<u64>; GENERAL],
}

impl Registers {
    /// What `/proc` tells of a blocked thread.
    pub fn blocked(pc: RemoteAddr, sp: RemoteAddr) -> Self {
        Self { pc, sp, general: [None; GENERAL] }
    }

    /// All registers, from a `struct user_regs_struct` (NT_PRSTATUS of ptrace and of core files).
    pub fn from_user_regs(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut general = [None; GENERAL];
        for (register, index) in general.iter_mut().zip(IN_USER_REGS) {
            *register = Some(word(index)?);
        }
        Some(Self { pc: RemoteAddr(word(USER_RIP)?), sp: RemoteAddr(word(IN_USER_REGS[usize::from(RSP)])?), general })
    }

    /// The frame pointer.
    pub fn rbp(&self) -> Option<u64> {
        self.get(RBP)
    }

    /// A register by its DWARF number.
    pub(crate) fn get(&self, register: u16) -> Option<u64> {
        match register {
            RSP => Some(self.sp.0),
            RETURN => Some(self.pc.0),
            register => self.general.get(usize::from(register)).copied().flatten(),
        }
    }

    /// The same with another frame pointer.
    pub(super) fn with_rbp(mut self, value: u64) -> Self {
        self.general[usize::from(RBP)] = Some(value);
        self
    }

    /// What the caller has of these, where nothing else is said.
    pub(super) fn preserved(&self) -> [Option<u64>; GENERAL] {
        let mut general = [None; GENERAL];
        for register in PRESERVED {
            general[usize::from(register)] = self.get(register);
        }
        general
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_regs_are_read_in_the_kernels_order() {
        // Each word holds its own index.
        let bytes: Vec<u8> = (0..27u64).flat_map(u64::to_le_bytes).collect();
        let registers = Registers::from_user_regs(&bytes).unwrap();
        assert_eq!((registers.pc, registers.sp), (RemoteAddr(16), RemoteAddr(19)));
        assert_eq!((registers.rbp(), registers.get(3), registers.get(15)), (Some(4), Some(5), Some(0)));
        assert_eq!(Registers::from_user_regs(&bytes[..151]), None);
    }
}
