//! Pipes of other processes: opening one that its process names, writing into one whose reader may have gone.

use super::file::reopen;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::write;
use std::fs::File;
use std::path::Path;

/// Where the kernel keeps pipes that have no name.
const PIPEFS: FsType = FsType(0x5049_5045);

/// Writes all of a short message. When the reader has gone that is an error and no signal, whatever our host program
/// does with SIGPIPE.
pub(crate) fn send(pipe: &File, message: &[u8]) -> Result<(), Errno> {
    let signal: SigSet = [Signal::SIGPIPE].into_iter().collect();
    let before = signal.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let written = write(pipe, message);
    if written == Err(Errno::EPIPE) && !before.contains(Signal::SIGPIPE) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a set and a time that live through the call.
        unsafe { libc::sigtimedwait(signal.as_ref(), std::ptr::null_mut(), &raw const now) };
    }
    let _ = before.thread_set_mask();
    written.map(drop)
}

/// Opens for writing the pipe that `link`, a descriptor of another process, leads to: an anonymous pipe that `uid` has made.
///
/// The number of the descriptor is that process's claim, and it may be anything: a file of somebody else's, a device, a
/// FIFO that nobody reads. So first a handle is taken that opens nothing. What is opened in the end is what was examined.
/// A pipe of `uid`'s is one that `uid` could open for writing as well.
pub(crate) fn open_anonymous(link: &Path, uid: u32) -> Result<File, Errno> {
    let handle = open(link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let about = fstat(&handle)?;
    let is_fifo = about.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFIFO.bits();
    if !is_fifo || fstatfs(&handle)?.filesystem_type() != PIPEFS || about.st_uid != uid {
        return Err(Errno::ESTALE);
    }
    reopen(&handle, OFlag::O_WRONLY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;

    fn link(fd: &impl AsRawFd) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()))
    }

    #[test]
    fn nothing_but_an_anonymous_pipe_is_opened() {
        let me = nix::unistd::geteuid().as_raw();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        for end in [&reader, &writer] {
            assert!(open_anonymous(&link(end), me).is_ok());
            assert_eq!(open_anonymous(&link(end), me + 1).unwrap_err(), Errno::ESTALE, "of another user");
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, fifo) = (dir.path().join("file"), dir.path().join("fifo"));
        std::fs::write(&file, "secret").unwrap();
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for path in [&file, &fifo, &PathBuf::from("/dev/null")] {
            // As a process that may not open it can have it all the same.
            let path_only = File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
            assert_eq!(open_anonymous(&link(&path_only), me).unwrap_err(), Errno::ESTALE, "{path:?}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"secret");
        // Full: nobody waits.
        let pipe = open_anonymous(&link(&reader), me).unwrap();
        while send(&pipe, &[0; 4096]).is_ok() {}
        assert_eq!(send(&pipe, &[0; 8]).unwrap_err(), Errno::EAGAIN);
    }
}
