//! The system calls that need `unsafe` or a careful hand: all else in the crate but two files of `arch` is safe code.

pub(crate) mod address_space;
pub(crate) mod bpf;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod file;
pub(crate) mod heap;
pub(crate) mod interrupt;
pub(crate) mod ipc;
#[cfg(feature = "profile")]
pub(crate) mod limits;
pub(crate) mod map_query;
pub(crate) mod parallel;
#[cfg(feature = "agent")]
pub(crate) mod pipe;
#[cfg(feature = "agent")]
pub(crate) mod priority;
pub(crate) mod ptrace;
pub(crate) mod robust;
pub(crate) mod sched;
pub(crate) mod sock_diag;
#[cfg(feature = "profile")]
pub(crate) mod spawn;
pub(crate) mod task;
pub(crate) mod terminal;
pub(crate) mod vm;
