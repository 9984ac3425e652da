//! What depends on the processor: registers and their order, system call numbers, code as bytes, and code of our own.
//! All else asks by meaning (`pc`, `syscall::FUTEX`) and names no register and no number.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
