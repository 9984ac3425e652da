//! The kernel's facts about the threads of a live process.

use super::Live;
use crate::proc::{parse_stat, parse_status, parse_syscall};
use crate::sys::{file, robust};
use crate::target::{KernelFacts, LwpFacts, SchedCounters, TargetError};
use crate::{Lwp, Pid, RemoteAddr};
use nix::errno::Errno;
use std::ffi::CStr;
use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;

/// Below this many threads a second reader costs more than it brings.
const WORTH_A_READER: usize = 64;
/// How often the files of one thread are read again when they tell of different moments.
const TRIES: usize = 3;

/// Reads the files of single tasks with memory of its own, so that readers run side by side.
struct Reader<'a> {
    live: &'a Live,
    buf: Vec<u8>,
    path: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(live: &'a Live) -> Self {
        Self { live, buf: Vec::with_capacity(8192), path: Vec::with_capacity(32) }
    }

    fn read(&mut self, lwp: Lwp, name: &str) -> Result<&[u8], Errno> {
        self.path.clear();
        // Writing to a Vec cannot fail, and neither number nor name holds a NUL.
        let _ = write!(self.path, "{lwp}/{name}\0");
        let path = CStr::from_bytes_with_nul(&self.path).map_err(|_| Errno::EINVAL)?;
        file::read_record(&self.live.task_dir, path, &mut self.buf)?;
        Ok(&self.buf)
    }

    fn once(&mut self, lwp: Lwp) -> Option<LwpFacts> {
        let stat = parse_stat(self.read(lwp, "stat").ok()?)?;
        let status = parse_status(self.read(lwp, "status").ok()?)?;
        let syscall = match self.read(lwp, "syscall") {
            Ok(bytes) => parse_syscall(bytes),
            Err(Errno::ENOENT | Errno::ESRCH) => return None,
            Err(_) => None,
        };
        Some(LwpFacts::from_files(lwp, stat, status, syscall))
    }

    fn facts(&mut self, lwp: Lwp) -> Option<LwpFacts> {
        let mut facts = self.once(lwp)?;
        for _ in 1..TRIES {
            if facts.agree() {
                break;
            }
            facts = self.once(lwp)?;
        }
        Some(facts)
    }
}

impl KernelFacts for Live {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        match self.list_tasks() {
            Ok(lwps) if !lwps.is_empty() => Ok(lwps),
            Ok(_) | Err(Errno::ENOENT | Errno::ESRCH) => Err(TargetError::Exited(self.pid)),
            Err(errno) => Err(TargetError::Proc { what: format!("/proc/{}/task", self.pid), errno }),
        }
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let read = |part: &[Lwp]| {
            let mut reader = Reader::new(self);
            part.iter().map(|lwp| reader.facts(*lwp)).collect::<Vec<_>>()
        };
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let readers = (lwps.len() / WORTH_A_READER).clamp(1, cpus.min(8));
        if readers == 1 {
            return read(lwps);
        }
        // This thread reads the first part itself; where no more threads can be had it reads all.
        let mut parts = lwps.chunks(lwps.len().div_ceil(readers));
        let first = parts.next().unwrap_or_default();
        thread::scope(|scope| {
            let others: Vec<_> =
                parts.map(|part| (part, thread::Builder::new().spawn_scoped(scope, move || read(part)))).collect();
            let mut all = read(first);
            for (part, handle) in others {
                match handle.ok().and_then(|handle| handle.join().ok()) {
                    Some(facts) => all.extend(facts),
                    None => all.extend(read(part)),
                }
            }
            all
        })
    }

    fn sched_counters(&self, lwp: Lwp) -> Option<SchedCounters> {
        let mut reader = Reader::new(self);
        let text = std::str::from_utf8(reader.read(lwp, "schedstat").ok()?).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok);
        Some(SchedCounters { run_ns: next()?, delay_ns: next()?, timeslices: next()? })
    }

    fn robust_heads(&self, lwps: &[Lwp]) -> Vec<Option<RemoteAddr>> {
        lwps.iter().map(|lwp| robust::robust_head(*lwp)).collect()
    }

    fn tracer_name(&self, tracer: i32) -> Option<Vec<u8>> {
        let mut name = std::fs::read(format!("/proc/{}/comm", Pid(tracer))).ok()?;
        name.pop_if(|last| *last == b'\n');
        Some(name)
    }
}
