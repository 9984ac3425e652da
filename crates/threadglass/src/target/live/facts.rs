//! The kernel's facts about the threads of a live process.

use super::{Live, list_tasks};
use crate::model::SignalSet;
use crate::proc::{Job, Stat, SyscallFile, parse_job, parse_schedstat, parse_stat, parse_status, parse_syscall};
use crate::sys::cgroup;
use crate::sys::parallel::in_parallel;
use crate::sys::{file, robust};
use crate::target::{Elsewhere, KernelFacts, LwpFacts, OutsideWaker, SchedCounters, TargetError, as_made};
use crate::{InnerTid, Lwp};
use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

/// How often the files of one thread are read again when they tell of different moments.
const TRIES: usize = 3;

/// Reads the files of single tasks with memory of its own, so that readers run side by side.
pub(super) struct TaskReader<'a> {
    /// `/proc/PID/task`.
    dir: &'a OwnedFd,
    buf: Vec<u8>,
    path: Vec<u8>,
}

impl<'a> TaskReader<'a> {
    pub(super) fn new(dir: &'a OwnedFd) -> Self {
        Self { dir, buf: Vec::new(), path: Vec::with_capacity(32) }
    }

    pub(super) fn read(&mut self, lwp: Lwp, name: &str) -> Result<&[u8], Errno> {
        self.path.clear();
        // Writing to a Vec cannot fail, and neither number nor name holds a NUL.
        let _ = write!(self.path, "{lwp}/{name}\0");
        let path = CStr::from_bytes_with_nul(&self.path).map_err(|_| Errno::EINVAL)?;
        file::read_record(self.dir, path, &mut self.buf)
    }

    pub(super) fn stat(&mut self, lwp: Lwp) -> Option<Stat> {
        parse_stat(self.read(lwp, "stat").ok()?)
    }

    fn once(&mut self, lwp: Lwp) -> Option<LwpFacts> {
        let stat = self.stat(lwp)?;
        let status = parse_status(self.read(lwp, "status").ok()?)?;
        let syscall = match self.read(lwp, "syscall") {
            Ok(bytes) => parse_syscall(bytes),
            Err(Errno::ENOENT | Errno::ESRCH) => return None,
            Err(_) => None,
        };
        let mut facts = LwpFacts::from_files(lwp, stat, status, syscall);
        facts.robust_head = robust::robust_head(lwp);
        Some(facts)
    }

    fn facts(&mut self, lwp: Lwp) -> Option<LwpFacts> {
        self.agreeing(lwp, Self::once)
    }

    /// Half of the cost is saved with the file `status`.
    fn brief(&mut self, lwp: Lwp) -> Option<LwpFacts> {
        self.agreeing(lwp, |reader, lwp| {
            let stat = reader.stat(lwp)?;
            let syscall = parse_syscall(reader.read(lwp, "syscall").ok()?);
            let runs = parse_schedstat(reader.read(lwp, "schedstat").ok()?)?.timeslices;
            let bare = LwpFacts::bare(lwp, stat.state);
            Some(LwpFacts { name: Some(stat.comm), syscall, switches: Some((runs, 0)), ..bare })
        })
    }

    fn agreeing(&mut self, lwp: Lwp, once: impl Fn(&mut Self, Lwp) -> Option<LwpFacts>) -> Option<LwpFacts> {
        let mut facts = once(self, lwp)?;
        for _ in 1..TRIES {
            if facts.agree() {
                break;
            }
            facts = once(self, lwp)?;
        }
        Some(facts)
    }
}

impl Live {
    /// The thread that a target in a namespace of its own knows as `inner`. All of its threads are asked
    /// at once, and again only when one is missing or has another id by now.
    pub(super) fn search_inner(&self, inner: InnerTid) -> Option<Lwp> {
        let known = |map: &HashMap<InnerTid, Lwp>| map.get(&inner).copied();
        let lock = || self.inner_ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lwp) = known(&lock())
            && self.inner_of(lwp) == Some(inner)
        {
            return Some(lwp);
        }
        let lwps = list_tasks(&self.task_dir).ok()?;
        let inners = in_parallel(&lwps, |part| part.iter().map(|lwp| self.inner_of(*lwp)).collect());
        let fresh: HashMap<_, _> =
            inners.into_iter().zip(lwps).filter_map(|(inner, lwp)| Some((inner?, lwp))).collect();
        let found = known(&fresh);
        *lock() = fresh;
        found
    }

    pub(super) fn reader(&self) -> TaskReader<'_> {
        TaskReader::new(&self.task_dir)
    }

    fn inner_of(&self, lwp: Lwp) -> Option<InnerTid> {
        parse_status(self.reader().read(lwp, "status").ok()?)?.inner_tid
    }

    /// What each of `lwps` is blocked in now, where that may be read.
    pub(crate) fn wait_calls(&self, lwps: &[Lwp]) -> Vec<Option<SyscallFile>> {
        let mut reader = self.reader();
        lwps.iter().map(|lwp| Some(as_made(self, parse_syscall(reader.read(*lwp, "syscall").ok()?)?))).collect()
    }

    /// Facts of each of `lwps` from the files of `/proc`. Public for tests, which compare.
    #[doc(hidden)]
    pub fn facts_by_proc(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        in_parallel(lwps, |part| {
            let mut reader = self.reader();
            part.iter().map(|lwp| reader.facts(*lwp)).collect()
        })
    }
}

impl KernelFacts for Live {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        match list_tasks(&self.task_dir) {
            Ok(lwps) if !lwps.is_empty() => {
                if let Some(kept) = &self.kept {
                    kept.retain(&lwps);
                }
                Ok(lwps)
            }
            Ok(_) | Err(Errno::ENOENT | Errno::ESRCH) => Err(TargetError::Exited(self.pid)),
            Err(errno) => Err(TargetError::Proc { what: format!("/proc/{}/task", self.pid), errno }),
        }
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let facts = self.facts_if_worthwhile(lwps).unwrap_or_else(|| match &self.kept {
            Some(kept) => kept.facts(self, lwps, |missing| self.facts_by_proc(missing)),
            None => self.facts_by_proc(lwps),
        });
        facts.into_iter().map(|facts| Some(facts?.with_call_as_made(self))).collect()
    }

    fn brief_facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        // The size of the process decides, so that what is compared was told in the same way.
        if self.has_worthwhile_iterator() || self.kept.is_some() {
            return self.facts(lwps);
        }
        let mut reader = self.reader();
        let found: Vec<Option<LwpFacts>> = lwps.iter().map(|lwp| reader.brief(*lwp)).collect();
        // A kernel may not count how often threads run.
        if found.iter().all(Option::is_none) {
            return self.facts(lwps);
        }
        found.into_iter().map(|facts| Some(facts?.with_call_as_made(self))).collect()
    }

    /// The kernel keeps it as the link count of the task directory, so it costs next to nothing.
    fn thread_count(&self) -> Option<usize> {
        let links = nix::sys::stat::fstat(&self.task_dir).ok()?.st_nlink;
        usize::try_from(links).ok()?.checked_sub(2)
    }

    fn has_thread(&self, lwp: Lwp) -> bool {
        self.reader().read(lwp, "comm").is_ok()
    }

    fn wait_call(&self, lwp: Lwp) -> Option<SyscallFile> {
        Some(as_made(self, parse_syscall(self.reader().read(lwp, "syscall").ok()?)?))
    }

    fn sched_counters(&self, lwp: Lwp) -> Option<SchedCounters> {
        parse_schedstat(self.reader().read(lwp, "schedstat").ok()?)
    }

    fn elsewhere(&self, inner: InnerTid) -> Elsewhere {
        self.find_elsewhere(inner)
    }

    fn idle_ms(&self, lwps: &[Lwp]) -> Vec<Option<u64>> {
        self.idle(lwps)
    }

    fn descriptor_file(&self, number: i32) -> Option<String> {
        // The link is read, not followed: opening what it leads to might act on it.
        let link =
            nix::fcntl::readlinkat(&self.proc_dir, format!("task/{}/fd/{number}", self.witness).as_str()).ok()?;
        Some(link.to_string_lossy().into_owned())
    }

    fn descriptor_info(&self, number: i32) -> Option<String> {
        let name = std::ffi::CString::new(format!("task/{}/fdinfo/{number}", self.witness)).ok()?;
        String::from_utf8(file::read_stream(&self.proc_dir, &name).ok()?).ok()
    }

    fn is_fifo(&self, number: i32) -> bool {
        let found = file::file_behind(&format!("/proc/{}/task/{}/fd/{number}", self.pid, self.witness));
        found.is_some_and(|found| found.is_fifo())
    }

    fn wait_channel(&self, lwp: Lwp) -> Option<String> {
        let name = String::from_utf8(self.reader().read(lwp, "wchan").ok()?.to_vec()).ok()?;
        (!matches!(name.as_str(), "" | "0")).then_some(name)
    }

    fn handled_signals(&self) -> Option<SignalSet> {
        let status = parse_status(self.reader().read(self.witness, "status").ok()?)?;
        Some(status.caught.iter().filter(|signal| comes_from_outside(*signal)).collect())
    }

    fn job(&self) -> Option<Job> {
        parse_job(file::read_record(&self.proc_dir, c"stat", &mut Vec::new()).ok()?)
    }

    fn outside_wakers(&self) -> Option<Vec<OutsideWaker>> {
        self.find_wakers()
    }

    fn frozen(&self) -> Option<String> {
        cgroup::frozen(self.pid, self.witness)
    }

    fn throttled_us(&self) -> Option<u64> {
        cgroup::throttled_us(self.pid)
    }

    fn tracer_name(&self, tracer: i32) -> Option<Vec<u8>> {
        let mut name = std::fs::read(format!("/proc/{tracer}/comm")).ok()?;
        name.pop_if(|last| *last == b'\n');
        Some(name)
    }
}

/// Whether a signal comes from others: not from what its thread does, nor from libc for its own purposes.
fn comes_from_outside(signal: u32) -> bool {
    const OWN: [i32; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
    const OF_LIBC: std::ops::RangeInclusive<u32> = 32..=33;
    !OF_LIBC.contains(&signal) && !OWN.contains(&(signal as i32))
}
