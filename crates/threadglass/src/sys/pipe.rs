//! Writing into a pipe whose reader may have gone.

use nix::errno::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

/// Writes all of a short message. When the reader has gone that is an error and no signal, whatever our host program
/// does with SIGPIPE.
pub(crate) fn send(pipe: &File, message: &[u8]) -> Result<(), Errno> {
    // SAFETY: the sets are initialised before they are used, and everything lives through the calls.
    unsafe {
        let (mut wanted, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before);
        let written = Errno::result(libc::write(pipe.as_raw_fd(), message.as_ptr().cast(), message.len()));
        if written == Err(Errno::EPIPE) && libc::sigismember(&raw const before, libc::SIGPIPE) == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const wanted, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        written.map(drop)
    }
}

/// A copy of descriptor `fd` of the thread `lwp`, which may have a table of its own.
pub(crate) fn copy_descriptor(lwp: i32, fd: u32) -> Result<File, Errno> {
    const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;
    // SAFETY: numbers only; what is returned is a new descriptor of ours.
    unsafe {
        let handle = Errno::result(libc::syscall(libc::SYS_pidfd_open, lwp, PIDFD_THREAD))?;
        let handle = File::from_raw_fd(handle as i32);
        let copy = Errno::result(libc::syscall(libc::SYS_pidfd_getfd, handle.as_raw_fd(), fd, 0))?;
        Ok(File::from_raw_fd(copy as i32))
    }
}
