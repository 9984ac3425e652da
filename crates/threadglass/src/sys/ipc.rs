//! System V IPC: what the kernel tells of it. Nothing is changed.

use crate::Pid;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use std::fs::File;

/// A semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreValue {
    pub(crate) value: i32,
    /// The process that changed it last; 0 for none, or one that has no number here.
    pub(crate) last: Pid,
}

/// Semaphore `number` of the set `id` of our own namespace.
pub(crate) fn semaphore(id: i32, number: i32) -> Result<SemaphoreValue, Errno> {
    // SAFETY: both commands only return a number, and take no further argument.
    let ask = |command| Errno::result(unsafe { libc::semctl(id, number, command) });
    Ok(SemaphoreValue { value: ask(libc::GETVAL)?, last: Pid(ask(libc::GETPID)?) })
}

/// What `read` finds in the IPC namespace that `file` stands for, which a thread of our own enters. `None` without the
/// privilege.
pub(crate) fn in_namespace<T: Send + 'static>(file: File, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let enter = move || setns(file, CloneFlags::CLONE_NEWIPC).ok().map(|()| read());
    std::thread::Builder::new().spawn(enter).ok()?.join().ok()?
}
