//! The program's own buffer, accessed so that a bad address is an error and not a crash.

use std::io;

/// Most pieces of one call (`IOV_MAX`).
pub(crate) const PIECES: usize = 1024;

/// Reads `N` bytes at each address. Gives how many were read before the first that could not be.
pub(crate) fn read<const N: usize>(addresses: &[u64], into: &mut [[u8; N]]) -> io::Result<usize> {
    let count = addresses.len().min(into.len()).min(PIECES);
    transfer(libc::SYS_process_vm_readv, &addresses[..count], into.as_mut_ptr().cast(), N)
}

/// Writes `N` bytes at each address. Gives how many were written before the first that could not be.
pub(crate) fn write<const N: usize>(addresses: &[u64], from: &[[u8; N]]) -> io::Result<usize> {
    let count = addresses.len().min(from.len()).min(PIECES);
    transfer(libc::SYS_process_vm_writev, &addresses[..count], from.as_ptr().cast_mut().cast(), N)
}

/// One call for all pieces; `Ok(0)` where the first address is bad, an error where the call is not allowed.
fn transfer(call: libc::c_long, addresses: &[u64], local: *mut libc::c_void, piece: usize) -> io::Result<usize> {
    let local = libc::iovec { iov_base: local, iov_len: addresses.len() * piece };
    let remote: Vec<_> = addresses
        .iter()
        .map(|&address| libc::iovec { iov_base: address as *mut libc::c_void, iov_len: piece })
        .collect();
    // SAFETY: `local` describes a slice of the caller's, shared or exclusive as the direction needs. The remote
    // side is our own process: the addresses are those the program gave for its histogram, and the kernel
    // checks them like those of a system call.
    let moved = unsafe {
        libc::syscall(call, libc::getpid(), std::ptr::from_ref(&local), 1usize, remote.as_ptr(), remote.len(), 0usize)
    };
    if moved >= 0 {
        return Ok(moved as usize / piece);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EINVAL)) => Ok(0),
        error => Err(error),
    }
}

/// A pipe: its ends refuse bad addresses too, where process_vm_writev is forbidden.
#[derive(Debug)]
pub(crate) struct Pipe {
    from: io::PipeReader,
    to: io::PipeWriter,
}

impl Pipe {
    /// A new pipe in the caller's table of files.
    pub fn new() -> io::Result<Self> {
        let (from, to) = io::pipe()?;
        Ok(Self { from, to })
    }

    /// Reads `N` bytes at an address of the program's; `None` where there is nothing to read.
    pub fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        use std::io::Read;
        use std::os::fd::AsRawFd;
        // SAFETY: the kernel checks the address; nothing is dereferenced here.
        let moved = unsafe { libc::write(self.to.as_raw_fd(), address as *const libc::c_void, N) };
        let mut bytes = [0; N];
        let count = usize::try_from(moved).ok()?;
        self.from.read_exact(bytes.get_mut(..count)?).ok()?;
        (count == N).then_some(bytes)
    }

    /// Writes `N` bytes at an address of the program's; whether that was possible.
    pub fn write<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> bool {
        use std::io::{Read, Write};
        use std::os::fd::AsRawFd;
        if self.to.write_all(&bytes).is_err() {
            return false;
        }
        // SAFETY: the program gave this address for its histogram; the kernel checks that it can be written.
        let moved = unsafe { libc::read(self.from.as_raw_fd(), address as *mut libc::c_void, N) };
        let count = usize::try_from(moved).unwrap_or(0);
        // What did not reach the buffer must not be taken for the next value.
        let mut rest = [0; N];
        let _ = self.from.read_exact(&mut rest[count.min(N)..]);
        count == N
    }
}
