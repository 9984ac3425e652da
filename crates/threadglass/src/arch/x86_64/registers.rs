//! The registers of one frame, as far as they are known.

use super::insn::table::{DWARF, PRESERVED};
use crate::RemoteAddr;

/// Number of the frame pointer in DWARF's order.
pub(crate) const FRAME_POINTER: u16 = 6;
/// What people call it.
pub(crate) const FRAME_POINTER_NAME: &str = "rbp";
/// Number of the stack pointer.
pub(crate) const STACK_POINTER: u16 = 7;
/// Number of the column that holds the return address.
pub(crate) const RETURN: u16 = 16;

/// General registers in DWARF's order (rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 .. r15).
const GENERAL: usize = 16;

/// Where each of them stands in `struct user_regs_struct`, in units of eight bytes.
pub(super) const IN_USER_REGS: [usize; GENERAL] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0];

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

    /// In the order in which instructions number them.
    pub(crate) fn as_instructions_do(&self) -> [Option<u64>; GENERAL] {
        DWARF.map(|number| self.get(number))
    }

    /// A register by its DWARF number.
    pub(crate) fn get(&self, register: u16) -> Option<u64> {
        match register {
            STACK_POINTER => Some(self.sp.0),
            RETURN => Some(self.pc.0),
            register => self.general.get(usize::from(register)).copied().flatten(),
        }
    }

    /// The same with another frame pointer.
    pub(crate) fn with_frame_pointer(mut self, value: u64) -> Self {
        self.general[usize::from(FRAME_POINTER)] = Some(value);
        self
    }

    /// What the caller has of these, where nothing else is said.
    pub(crate) fn preserved(&self) -> [Option<u64>; GENERAL] {
        let mut general = [None; GENERAL];
        for register in PRESERVED.map(|number| DWARF[number]) {
            general[usize::from(register)] = self.get(register);
        }
        general
    }
}
