//! Batched reads of another process's memory.

use crate::memory::{ReadError, ReadErrorKind, Slot};
use crate::{Lwp, RemoteAddr};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid as NixPid;
use std::io::IoSliceMut;

/// The kernel's limit of iovecs for one call.
const BATCH: usize = 1024;

/// The call as a whole does not work (as opposed to one bad address): it is not allowed, it does not exist here, or
/// the thread has gone. `/proc/PID/mem` may still work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRefused;

/// Reads many ranges in few calls; every slot gets its own outcome.
pub(crate) fn read_many(lwp: Lwp, slots: &mut [Slot<'_>]) -> Result<(), CallRefused> {
    let mut rest = slots;
    while !rest.is_empty() {
        let take = rest.len().min(BATCH);
        let remote: Vec<_> =
            rest[..take].iter().map(|slot| RemoteIoVec { base: slot.addr.0 as usize, len: slot.buf.len() }).collect();
        let mut local: Vec<_> = rest[..take].iter_mut().map(|slot| IoSliceMut::new(slot.buf)).collect();
        let mut got = match process_vm_readv(NixPid::from_raw(lwp.0), &mut local, &remote) {
            Ok(n) => n,
            Err(errno) => refused(errno).map(|()| 0)?,
        };
        drop(local);
        // The transfer ends at the first byte that cannot be read: that slot is short, and the next
        // call begins behind it.
        let mut done = 0;
        for slot in &mut rest[..take] {
            let len = slot.buf.len();
            done += 1;
            if got >= len {
                got -= len;
                slot.outcome = Ok(len);
                continue;
            }
            slot.outcome = if got > 0 { Ok(got) } else { Err(fault(slot.addr, len)) };
            break;
        }
        rest = &mut rest[done..];
    }
    Ok(())
}

fn refused(errno: Errno) -> Result<(), CallRefused> {
    match errno {
        Errno::ESRCH | Errno::EPERM | Errno::EACCES | Errno::ENOSYS => Err(CallRefused),
        _ => Ok(()),
    }
}

fn fault(addr: RemoteAddr, len: usize) -> ReadError {
    ReadError { addr, len, kind: ReadErrorKind::Unmapped }
}
