//! Reading the counters of all threads of a process, again and again.

use crate::proc::{KernelState, SyscallFile, parse_schedstat, parse_syscall};
use crate::sys::{clock, file};
use crate::target::{Live, SchedCounters};
use crate::{Lwp, Pid};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// How many files are kept open at most. A kept file costs a quarter of one that is opened for each reading;
/// but the limit of open files is 1024 as a rule, and we may be guests in a debugger that needs them.
pub(super) const KEPT: usize = 256;

/// The directory of a process's threads. Of its own: the process it was taken from may go.
#[derive(Debug)]
pub(super) struct Tasks {
    dir: OwnedFd,
    pid: Pid,
    kept: usize,
    buf: Vec<u8>,
}

/// One small file of a thread: kept open where that is possible.
#[derive(Debug)]
pub(super) enum TaskFile {
    Kept(File),
    Named(CString),
}

impl Tasks {
    pub(super) fn of(live: &Live) -> Result<Self, Errno> {
        Ok(Self { dir: live.task_dir_handle()?, pid: live.pid(), kept: 0, buf: Vec::with_capacity(4096) })
    }

    pub(super) fn list(&self) -> Result<Vec<Lwp>, Errno> {
        file::list_numbers(&self.dir).map(|numbers| numbers.into_iter().map(Lwp).collect())
    }

    /// Their number, which the kernel keeps as the link count of the directory.
    pub(super) fn count(&self) -> Option<usize> {
        usize::try_from(fstat(&self.dir).ok()?.st_nlink).ok()?.checked_sub(2)
    }

    /// CPU time of all threads of the process, ended ones included. Of whatever process has its number now:
    /// the caller makes sure that it is still there.
    pub(super) fn process_clock(&self) -> Option<u64> {
        clock::process_cpu_ns(self.pid)
    }

    /// File `name` of thread `lwp`.
    pub(super) fn open(&mut self, lwp: Lwp, name: &str) -> Result<TaskFile, Errno> {
        let path = CString::new(format!("{lwp}/{name}")).map_err(|_| Errno::EINVAL)?;
        if self.kept >= KEPT {
            return Ok(TaskFile::Named(path));
        }
        match openat(&self.dir, path.as_c_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => {
                self.kept += 1;
                Ok(TaskFile::Kept(File::from(fd)))
            }
            // No more files for us: do without.
            Err(Errno::EMFILE | Errno::ENFILE) => Ok(TaskFile::Named(path)),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn close(&mut self, file: TaskFile) {
        if matches!(file, TaskFile::Kept(_)) {
            self.kept = self.kept.saturating_sub(1);
        }
    }

    fn read(&mut self, from: &TaskFile) -> Result<&[u8], Errno> {
        match from {
            TaskFile::Named(path) => file::read_record(&self.dir, path, &mut self.buf),
            TaskFile::Kept(kept) => {
                self.buf.resize(1024, 0);
                let got = kept
                    .read_at(&mut self.buf, 0)
                    .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
                Ok(&self.buf[..got])
            }
        }
    }

    /// File `name` of thread `lwp`, which is not opened again soon.
    fn read_once(&mut self, lwp: Lwp, name: &str) -> Option<&[u8]> {
        self.read(&TaskFile::Named(CString::new(format!("{lwp}/{name}")).ok()?)).ok()
    }

    /// The counters of a thread; `Err(ESRCH)` when it has ended.
    pub(super) fn counters(&mut self, from: &TaskFile) -> Result<SchedCounters, Errno> {
        // An ended thread's file may be empty rather than an error.
        parse_schedstat(self.read(from)?).ok_or(Errno::ESRCH)
    }

    pub(super) fn call(&mut self, from: &TaskFile) -> Result<SyscallFile, Errno> {
        parse_syscall(self.read(from)?).ok_or(Errno::ESRCH)
    }

    /// The kernel's state of a thread, and how often it went to sleep so far.
    pub(super) fn state(&mut self, lwp: Lwp) -> Option<(KernelState, u64)> {
        let status = self.read_once(lwp, "status")?;
        let value = |name: &[u8]| status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
        let letter = value(b"State:")?.trim_ascii_start().first()?;
        let sleeps = std::str::from_utf8(value(b"voluntary_ctxt_switches:")?).ok()?.trim().parse().ok()?;
        Some((KernelState::from_letter(*letter), sleeps))
    }

    pub(super) fn name(&mut self, lwp: Lwp) -> Option<String> {
        let name = self.read_once(lwp, "comm")?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(name)).into_owned())
    }
}
