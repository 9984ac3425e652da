//! Opening and reading small kernel files, and opening files that a target names.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::read;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a directory for lookups relative to it.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Opens the file `name` below `dir` for reading.
pub(crate) fn open_at(dir: impl AsFd, name: &CStr) -> Result<File, Errno> {
    openat(dir, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

/// Reads the one-record kernel file `name` (stat, status, syscall ..) below `dir` into `buf`, reusing
/// its memory. Such a file comes in one piece when the buffer has room for it.
pub(crate) fn read_record(dir: impl AsFd, name: &CStr, buf: &mut Vec<u8>) -> Result<(), Errno> {
    read_until(&open_at(dir, name)?, buf, |got, room| got < room)
}

/// Reads a kernel file that comes in pieces (maps, auxv): only an empty read is its end.
pub(crate) fn read_stream(dir: impl AsFd, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut buf = Vec::new();
    read_until(&open_at(dir, name)?, &mut buf, |got, _| got == 0)?;
    Ok(buf)
}

fn read_until(file: &File, buf: &mut Vec<u8>, is_end: impl Fn(usize, usize) -> bool) -> Result<(), Errno> {
    let mut len = 0;
    buf.resize(buf.capacity().max(4096), 0);
    loop {
        let room = buf.len() - len;
        let got = match read(file, &mut buf[len..]) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        len += got;
        if is_end(got, room) {
            buf.truncate(len);
            return Ok(());
        }
        if len == buf.len() {
            buf.resize(len * 2, 0);
        }
    }
}

/// The entries of a directory that are numbers (the threads in `/proc/PID/task`).
pub(crate) fn list_numbers(dir: &OwnedFd) -> Result<Vec<i32>, Errno> {
    // A fresh handle: the position of `dir` itself is shared with everyone who uses it.
    let mut entries = Dir::openat(dir, c".", OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut numbers = Vec::new();
    for entry in entries.iter() {
        if let Ok(number) = entry?.file_name().to_str().unwrap_or_default().parse() {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// [`list_numbers`] of the directory at `path`; none where it cannot be read.
pub(crate) fn numbers_in(path: &str) -> Vec<i32> {
    open_dir(path.as_ref()).and_then(|dir| list_numbers(&dir)).unwrap_or_default()
}

/// Opens a file that the *target* named, without being tricked by it: no FIFO that never answers,
/// no device with side effects. Symbolic links are followed inside `root` as the target would.
pub(crate) fn open_regular_below(root: &OwnedFd, path: &[u8]) -> Result<File, Errno> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let handle = openat2(root, OsStr::from_bytes(relative), how)?;
    reopen_regular(handle)
}

/// The same, if the last part of `path` is the file itself and no link to it.
#[cfg(feature = "profile")]
pub(crate) fn open_unlinked_below(root: &OwnedFd, path: &[u8]) -> Result<File, Errno> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    reopen_regular(openat2(root, OsStr::from_bytes(relative), how)?)
}

/// Opens a magic link such as `exe` or `map_files/..` below a `/proc/PID` directory, if what it
/// leads to is a regular file.
pub(crate) fn open_regular_link(dir: &OwnedFd, name: &CStr) -> Result<File, Errno> {
    reopen_regular(openat(dir, name, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// The name of an open file, without directories, for people to read.
pub(crate) fn name_of(file: &File) -> String {
    let path = nix::fcntl::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()).as_str()).unwrap_or_default();
    let path = path.to_string_lossy();
    let name = path.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "a file".to_owned() } else { name.to_owned() }
}

fn reopen_regular(handle: OwnedFd) -> Result<File, Errno> {
    let mode = SFlag::from_bits_truncate(fstat(&handle)?.st_mode & SFlag::S_IFMT.bits());
    if mode != SFlag::S_IFREG {
        return Err(Errno::EINVAL);
    }
    reopen(&handle, OFlag::O_RDONLY)
}

/// Opens for use what an O_PATH handle, which can only be examined, stands for: exactly that file.
pub(crate) fn reopen(handle: &impl AsRawFd, access: OFlag) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    open(path.as_str(), access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

/// Whether a program has capabilities of its own (`setcap`).
pub(crate) fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that live through the call; without room the kernel only tells the size.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_or_device_under_a_librarys_name_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("libc.so.6"), Mode::S_IRUSR).unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("/file", dir.path().join("link")).unwrap();
        let root = open_dir(dir.path()).unwrap();
        assert_eq!(open_regular_below(&root, b"/libc.so.6").unwrap_err(), Errno::EINVAL);
        assert!(open_regular_below(&root, b"/file").is_ok());
        assert!(open_regular_below(&root, b"/link").is_ok(), "links resolve inside the root");
        let slash = open_dir(Path::new("/")).unwrap();
        assert_eq!(open_regular_below(&slash, b"/dev/null").unwrap_err(), Errno::EINVAL);
    }
}
