//! x86-64.

pub(crate) mod code;
mod general;
// Open only to tests, which need no words for each operand.
#[allow(missing_docs)]
pub mod insn;
pub(crate) mod prologue;
mod registers;
#[cfg(feature = "agent")]
pub(crate) mod signal_frame;
#[cfg(feature = "agent")]
#[allow(unsafe_code)]
pub(crate) mod stub;
pub(crate) mod syscall;
#[allow(unsafe_code)]
pub(crate) mod ticks;

pub use general::GeneralRegisters;
pub(crate) use general::Restart;
pub use registers::Registers;
pub(crate) use registers::{FRAME_POINTER, FRAME_POINTER_NAME, RETURN, STACK_POINTER};
pub use syscall::syscall_name;
pub(crate) use syscall::syscall_word;

/// The processor's number in ELF headers.
pub(crate) const ELF_MACHINE: u16 = 62;
/// The processor's number for seccomp filters.
pub(crate) const AUDIT: u32 = 0xc000_003e;
/// `NT_X86_XSTATE`: the note that has the processor's extended state.
pub(crate) const EXTENDED_STATE: u32 = 0x202;
/// Members of the kernel's `pt_regs`: the system call's number, its six arguments, stack pointer, program counter.
pub(crate) const KERNEL_REGISTERS: [&str; 9] = ["orig_ax", "di", "si", "dx", "r10", "r8", "r9", "sp", "ip"];
/// The bit of `thread_info.status` (`TS_COMPAT`) that says that the last system call came by the 32-bit interface, so that
/// its arguments are in other registers.
pub(crate) const COMPAT: u32 = 2;
