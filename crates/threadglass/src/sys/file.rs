//! Opening and reading small kernel files, and opening files that a target names.

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

/// The same of the directory `name` below `dir`.
pub(crate) fn open_dir_at(dir: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Opens the file `name` below `dir` for reading.
pub(crate) fn open_at(dir: impl AsFd, name: &CStr) -> Result<File, Errno> {
    openat(dir, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

/// Reads the one-record kernel file `name` (stat, status, syscall ..) below `dir` into `buf`, reusing
/// its memory. Such a file comes in one piece when the buffer has room for it.
pub(crate) fn read_record<'a>(dir: impl AsFd, name: &CStr, buf: &'a mut Vec<u8>) -> Result<&'a [u8], Errno> {
    let length = read_until(&open_at(dir, name)?, buf, |got, room| got < room)?;
    Ok(&buf[..length])
}

/// Reads a kernel file that comes in pieces (maps, auxv): only an empty read is its end.
pub(crate) fn read_stream(dir: impl AsFd, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut buf = Vec::new();
    let length = read_until(&open_at(dir, name)?, &mut buf, |got, _| got == 0)?;
    buf.truncate(length);
    Ok(buf)
}

/// How many bytes were read to the beginning of `buf`, which keeps its length.
fn read_until(file: &File, buf: &mut Vec<u8>, is_end: impl Fn(usize, usize) -> bool) -> Result<usize, Errno> {
    let mut len = 0;
    // What is there already is written over: to clear it would cost as much as the call.
    buf.resize(buf.len().max(4096), 0);
    loop {
        let room = buf.len() - len;
        let got = match read(file, &mut buf[len..]) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        len += got;
        if is_end(got, room) {
            return Ok(len);
        }
        if len == buf.len() {
            buf.resize(len * 2, 0);
        }
    }
}

/// The entries of a directory that are numbers (the threads in `/proc/PID/task`).
pub(crate) fn list_numbers(dir: &OwnedFd) -> Result<Vec<i32>, Errno> {
    // A fresh handle: the position of `dir` itself is shared with everyone who uses it.
    let entries = open_dir_at(dir, c".")?;
    let mut numbers = Vec::new();
    read_numbers(&entries, &mut numbers)?;
    Ok(numbers)
}

/// Adds the entries of a directory that nobody has read from yet, as far as they are numbers. Directories of `/proc` are read
/// by the thousand, so the kernel's records are taken as they are.
pub(crate) fn read_numbers(dir: &OwnedFd, numbers: &mut Vec<i32>) -> Result<(), Errno> {
    /// Where the length of a record and its name are.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut room = [0u8; 16384];
    loop {
        // SAFETY: the kernel writes at most as many bytes as there is room for.
        let got =
            unsafe { libc::syscall(crate::arch::syscall::GETDENTS64, dir.as_raw_fd(), room.as_mut_ptr(), room.len()) };
        let mut rest = room.get(..Errno::result(got)? as usize).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        while let Some(length) = rest.get(LENGTH..LENGTH + 2).map(|it| usize::from(u16::from_ne_bytes([it[0], it[1]])))
        {
            numbers.extend(rest.get(NAME..length).and_then(number_in));
            rest = rest.get(length.max(NAME)..).unwrap_or_default();
        }
    }
}

/// The number that a name is, up to its zero byte.
fn number_in(name: &[u8]) -> Option<i32> {
    let name = name.split(|byte| *byte == 0).next()?;
    name.first().filter(|first| first.is_ascii_digit())?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// [`list_numbers`] of the directory at `path`; none where it cannot be read.
pub(crate) fn numbers_in(path: &str) -> Vec<i32> {
    open_dir(path.as_ref()).and_then(|dir| list_numbers(&dir)).unwrap_or_default()
}

/// What the link `number` below `dir` (`/proc/PID/fd`) leads to, as far as it fits into `buffer`.
pub(crate) fn read_number_link<'a>(dir: &OwnedFd, number: i32, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut name = [0; 16];
    // Eleven bytes at most, so that a zero is left.
    std::io::Write::write_fmt(&mut &mut name[..15], format_args!("{number}")).ok()?;
    // SAFETY: a string that ends with a zero, and room for as many bytes as are said.
    let length =
        unsafe { libc::readlinkat(dir.as_raw_fd(), name.as_ptr().cast(), buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.get(..usize::try_from(length).ok()?)
}

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileBehind {
    mode: u32,
    /// Of the file system that it is in.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// Of a device: its own number.
    number: (u32, u32),
}

impl FileBehind {
    pub(crate) fn is_fifo(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFIFO
    }

    /// Major and minor number of a character device.
    pub(crate) fn character_device(&self) -> Option<(u32, u32)> {
        (self.mode & libc::S_IFMT == libc::S_IFCHR).then_some(self.number)
    }
}

/// What the magic link `path` leads to. That is not opened, and no server is asked about it.
pub(crate) fn file_behind(path: &str) -> Option<FileBehind> {
    let path = std::ffi::CString::new(path).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_TYPE | libc::STATX_INO;
    // SAFETY: a string that lives through the call, and room for one `statx`, which is plain numbers.
    let found = unsafe {
        let answer = libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_STATX_DONT_SYNC, wanted, found.as_mut_ptr());
        (answer == 0).then(|| found.assume_init())?
    };
    Some(FileBehind {
        mode: found.stx_mode.into(),
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        number: (found.stx_rdev_major, found.stx_rdev_minor),
    })
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
    fn numbers_of_a_directory_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        // More than fit into one answer of the kernel.
        for number in 0..1000 {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        for name in ["+1", "-7", "12a", "99999999999", "x"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let handle = open_dir(dir.path()).unwrap();
        for _ in 0..2 {
            let mut numbers = list_numbers(&handle).unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..1000).collect::<Vec<i32>>());
        }
        assert_eq!(list_numbers(&std::fs::File::open(dir.path().join("1")).unwrap().into()), Err(Errno::ENOTDIR));
    }

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
