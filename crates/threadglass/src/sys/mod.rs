//! The system calls that need `unsafe` or a careful hand: everything else in the crate is safe code.

pub(crate) mod file;
pub(crate) mod robust;
pub(crate) mod vm;
