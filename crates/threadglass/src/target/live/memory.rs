//! Memory of a live process: `process_vm_readv`, or `/proc/PID/mem` where that call is filtered.

use super::{Live, task_file};
use crate::memory::{Memory, ReadError, ReadErrorKind, Slot};
use crate::sys::file;
use crate::sys::vm::{self, CallRefused};
use crate::{Lwp, RemoteAddr};
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct LiveMemory {
    lwp: Lwp,
    /// Held open because it stays tied to the address space it was opened on: after an exec it
    /// reads nothing, while `process_vm_readv` would happily read the new program.
    file: Result<File, Errno>,
    /// Set once the kernel refused the batched call (a seccomp filter does that in containers), or the thread it
    /// goes through has ended: others of the process may go on, and the file reads nothing once none does.
    only_file: AtomicBool,
}

impl LiveMemory {
    pub(super) fn open(lwp: Lwp, task_dir: &OwnedFd) -> Self {
        let file = file::open_at(task_dir, &task_file(lwp, "mem"));
        Self { lwp, file, only_file: AtomicBool::new(false) }
    }

    pub(super) fn errno(&self) -> Option<Errno> {
        self.file.as_ref().err().copied()
    }

    /// Whether the address space we opened has no users any more. A read of nothing at an unmapped
    /// address fails with EIO while the space lives and gives 0 once it is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.file.as_ref().is_ok_and(|file| matches!(file.read_at(&mut [0], 0), Ok(0)))
    }

    fn read_file(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let kind = match self.file.as_ref().map(|file| file.read_at(buf, addr.0)) {
            Ok(Ok(0)) if !buf.is_empty() => ReadErrorKind::Gone,
            Ok(Ok(n)) => return Ok(n),
            Ok(Err(_)) => ReadErrorKind::Unmapped,
            Err(_) => ReadErrorKind::Denied,
        };
        Err(ReadError { addr, len: buf.len(), kind })
    }

    /// Whether the batched call has read all `slots`.
    fn read_by_call(&self, slots: &mut [Slot<'_>]) -> bool {
        if self.file.is_err() || self.only_file.load(Ordering::Relaxed) {
            return false;
        }
        let read = vm::read_many(self.lwp, slots);
        read.inspect_err(|CallRefused| self.only_file.store(true, Ordering::Relaxed)).is_ok()
    }
}

impl Memory for Live {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let mut slot = [Slot::new(addr, buf)];
        self.read_many(&mut slot);
        slot[0].outcome
    }

    fn read_many(&self, slots: &mut [Slot<'_>]) {
        if !self.memory.read_by_call(slots) {
            slots.iter_mut().for_each(|slot| slot.outcome = self.memory.read_file(slot.addr, slot.buf));
        }
    }
}
