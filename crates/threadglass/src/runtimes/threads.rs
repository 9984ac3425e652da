//! What a C library has recorded of a thread, whichever library it is.

use super::{glibc, musl};
use crate::model::Policy;
use crate::{PthreadId, RemoteAddr};

/// Where the C library of a target keeps what.
#[derive(Clone, Copy, Debug)]
pub enum LibcLayout<'a> {
    /// In glibc.
    Glibc(&'a glibc::Layout),
    /// In musl.
    Musl(&'a musl::Layout),
}

/// What a C library has recorded of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadRecord {
    pub(crate) id: PthreadId,
    /// Kernel thread id as the target sees it.
    pub(crate) tid: i32,
    /// Where the thread began; main has none.
    pub(crate) start: Option<RemoteAddr>,
    pub(crate) detached: Option<bool>,
    pub(crate) is_exiting: bool,
    /// One past the highest address of the stack, its size, and the guard below it.
    pub(crate) stack: Option<(RemoteAddr, u64, u64)>,
    /// Of main: where its stack began.
    pub(crate) stack_end: Option<RemoteAddr>,
    /// Policy and priority, where they are recorded.
    pub(crate) scheduling: Option<(Policy, i32)>,
    /// Bytes of the descriptor.
    pub(crate) size: Option<u64>,
    /// Exit and cancellation bits.
    pub(crate) flags: Option<u32>,
    /// Where the pointers to thread-specific data are.
    pub(crate) specific: Option<RemoteAddr>,
    /// Whether events are reported, and which.
    pub(crate) report_events: Option<bool>,
    pub(crate) events: Option<[u32; 2]>,
}

impl ThreadRecord {
    /// Priority as `pthread_getschedparam` reports it, as far as it is recorded.
    pub(crate) fn priority(&self) -> Option<i32> {
        self.scheduling.map(|(policy, priority)| if policy.is_realtime() { priority } else { 0 })
    }
}
