//! Writing to the memory of a live process.

use crate::RemoteAddr;
use crate::target::{Live, Memory, MemoryWrite, ReadError, ReadErrorKind, Slot};
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
        match process_vm_writev(NixPid::from_raw(self.0.witness().0), &[IoSlice::new(bytes)], &remote) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) | Err(nix::errno::Errno::EFAULT) => Err(failed(ReadErrorKind::Unmapped)),
            Err(nix::errno::Errno::ESRCH) => Err(failed(ReadErrorKind::Gone)),
            Err(_) => Err(failed(ReadErrorKind::Denied)),
        }
    }
}
