//! Writing to the memory of a live process.

use crate::memory::{Memory, MemoryWrite, ReadError, ReadErrorKind, Slot};
use crate::target::{KernelFacts, Live};
use crate::{Lwp, RemoteAddr};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid as NixPid;
use std::io::IoSlice;

/// A live process whose memory may be written. Made on purpose, never by a command that looks.
#[derive(Clone, Copy, Debug)]
pub struct LiveWriter<'a>(pub &'a Live);

impl Memory for LiveWriter<'_> {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        self.0.read_at(addr, buf)
    }

    fn read_many(&self, slots: &mut [Slot<'_>]) {
        self.0.read_many(slots);
    }
}

impl MemoryWrite for LiveWriter<'_> {
    fn write_at(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), ReadError> {
        let failed = |kind| ReadError { addr, len: bytes.len(), kind };
        // The pid may be another program's by now.
        self.0.check_identity().map_err(|_| failed(ReadErrorKind::Gone))?;
        let remote = [RemoteIoVec { base: addr.0 as usize, len: bytes.len() }];
        let through = |lwp: Lwp| process_vm_writev(NixPid::from_raw(lwp.0), &[IoSlice::new(bytes)], &remote);
        let written = match through(self.0.witness()) {
            // It has ended, but others of the process may go on.
            Err(Errno::ESRCH) => {
                let mut others = self.0.lwps().unwrap_or_default().into_iter().map(through);
                others.find(|written| *written != Err(Errno::ESRCH)).unwrap_or(Err(Errno::ESRCH))
            }
            written => written,
        };
        match written {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(failed(ReadErrorKind::Unmapped)),
            Err(Errno::ESRCH) => Err(failed(ReadErrorKind::Gone)),
            Err(_) => Err(failed(ReadErrorKind::Denied)),
        }
    }
}
