//! The only `unsafe` of the crate: system calls and memory shared with the kernel.

pub(crate) mod process;
pub(crate) mod timers;
pub(crate) mod vm;
