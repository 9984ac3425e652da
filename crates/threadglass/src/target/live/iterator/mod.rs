//! The facts of all threads of a process from one pass inside the kernel.
//!
//! Reading three files of `/proc` costs some 25 µs for each thread, nearly all of it opening files
//! and printing numbers. For a process with thousands of threads it pays to let the kernel run a
//! small BPF program for each thread (a *task iterator*) that copies the same fields into records.
//! Nothing is stopped and nothing is changed by that either. What a record cannot tell (a thread that
//! moved while it was read, one that has ended, 32-bit system calls) is read from `/proc` as before,
//! for just those threads.
//!
//! It is used when all of this holds, and otherwise `/proc` is read without a word:
//!
//! - [`WORTHWHILE`] threads or more are asked for, and they are a fair part of the process;
//! - the environment does not have `THREADGLASS_NO_BPF=1`;
//! - we may read the memory of the process, and hold `CAP_SYS_PTRACE`: so `/proc` would show us all
//!   that is shown here;
//! - we hold `CAP_SYS_ADMIN`, or `CAP_BPF` and `CAP_PERFMON`;
//! - the process and we live in the initial pid namespace, whose numbers BPF speaks;
//! - the kernel (6.1 or newer) describes its types in `/sys/kernel/btf/vmlinux`, and every field is
//!   there, of the size that is known.
//!
//! The program belongs to one [`Live`], and goes when that is dropped: it is never pinned.

mod all;
mod btf;
mod cputime;
mod fields;
mod filters;
mod permission;
mod program;
mod record;

pub(crate) use all::calls_of_all;

use super::Live;
use crate::sys::bpf;
use crate::target::{KernelFacts, LwpFacts};
use crate::{Lwp, Pid};
use fields::{FieldOffsets, RECORD};
use nix::errno::Errno;
use record::TaskRecord;
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// Below this many threads, `/proc` is read faster than a program is loaded.
const WORTHWHILE: usize = 512;
/// Fewer threads are read from `/proc`, even when the program is loaded already.
const WORTH_ANOTHER_PASS: usize = 64;
/// A pass visits all threads, also those that nobody asked for. One costs about a twentieth of what
/// reading it from `/proc` costs.
const MAX_VISITS_PER_ANSWER: usize = 8;
/// Passes that are made, at most: one ends early when the thread it has come to exits at the wrong moment.
const PASSES: usize = 3;
/// This many missing threads, or fewer, are not worth another pass.
const FEW: usize = 64;
/// The kernel gives at most 32 KiB at once.
const BUFFER: usize = 64 * 1024;

/// A loaded program, bound to one process.
#[derive(Debug)]
pub(super) struct TaskIterator {
    pid: Pid,
    /// Keeps the program, too.
    link: OwnedFd,
}

impl TaskIterator {
    /// `None` when that is not permitted or not possible here.
    fn load(live: &Live) -> Option<Self> {
        if !permission::granted(live) {
            return None;
        }
        let fields = FieldOffsets::find(&bpf::KernelTypes::open().ok()?)?;
        let program = bpf::load_iterator(&program::build(&fields), fields.function).ok()?;
        let link = bpf::attach_to_process(&program, u32::try_from(live.pid.0).ok()?).ok()?;
        Some(Self { pid: live.pid, link })
    }

    /// One pass: `each` sees the record of every thread.
    fn pass(&self, mut each: impl FnMut(&TaskRecord)) -> Result<(), Errno> {
        run(&self.link, |bytes| {
            // Records are never cut: the buffer has room for all that the kernel gives at once.
            let (records, rest) = bytes.as_chunks::<RECORD>();
            if !rest.is_empty() {
                return Err(Errno::EPROTO);
            }
            let records = records.iter().map(TaskRecord::decode);
            records.filter(|record| record.process() == self.pid).for_each(|record| each(&record));
            Ok(())
        })
    }
}

/// Runs the program behind `link` once; `take` gets what it writes.
fn run(link: &OwnedFd, mut take: impl FnMut(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    let stream = bpf::start_pass(link)?;
    let mut buf = vec![0; BUFFER];
    loop {
        match nix::unistd::read(&stream, &mut buf) {
            Ok(0) => return Ok(()),
            Ok(got) => take(&buf[..got])?,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}

impl Live {
    /// Whether a pass can be made, and the process is large enough for it to pay.
    pub(super) fn has_worthwhile_iterator(&self) -> bool {
        self.thread_count().is_some_and(|count| count >= WORTHWHILE)
            && self.iterator.get_or_init(|| TaskIterator::load(self)).is_some()
    }

    /// Facts of each of `lwps` from the iterator, where that can be used and pays, completed from
    /// `/proc`. `None` says that all are to be read there.
    pub(super) fn facts_if_worthwhile(&self, lwps: &[Lwp]) -> Option<Vec<Option<LwpFacts>>> {
        let is_loaded = self.iterator.get().is_some_and(Option::is_some);
        let least = if is_loaded { WORTH_ANOTHER_PASS } else { WORTHWHILE };
        if lwps.len() < least || self.thread_count()? / MAX_VISITS_PER_ANSWER > lwps.len() {
            return None;
        }
        let mut answers = self.facts_by_iterator(lwps)?;
        let open: Vec<usize> = (0..lwps.len()).filter(|i| answers[*i].is_none()).collect();
        let rest: Vec<Lwp> = open.iter().map(|i| lwps[*i]).collect();
        for (i, facts) in open.into_iter().zip(self.facts_by_proc(&rest)) {
            answers[i] = facts;
        }
        Some(answers)
    }

    /// When each thread was last on a CPU, and on which, from one pass, where that pays; `None` of a thread of which the kernel
    /// has forgotten that. Public for tests, which compare.
    #[doc(hidden)]
    pub fn last_runs_by_iterator(&self, number: usize) -> Option<HashMap<Lwp, Option<(usize, f64)>>> {
        if number < WORTH_ANOTHER_PASS || !self.has_worthwhile_iterator() {
            return None;
        }
        let iterator = self.iterator.get_or_init(|| TaskIterator::load(self)).as_ref()?;
        let mut found = HashMap::new();
        let keep = |record: &TaskRecord| {
            found.insert(record.lwp(), record.last_run());
        };
        iterator.pass(keep).ok()?;
        self.has_thread(self.pid.leader()).then_some(found)
    }

    /// What the iterator alone can tell, however few are asked for: `None` for a thread that has to
    /// be read from `/proc`. Public for tests, which compare.
    #[doc(hidden)]
    pub fn facts_by_iterator(&self, lwps: &[Lwp]) -> Option<Vec<Option<LwpFacts>>> {
        let iterator = self.iterator.get_or_init(|| TaskIterator::load(self)).as_ref()?;
        let place: HashMap<Lwp, usize> = lwps.iter().enumerate().map(|(i, lwp)| (*lwp, i)).collect();
        let mut answers: Vec<Option<LwpFacts>> = vec![None; lwps.len()];
        let mut is_seen = vec![false; lwps.len()];
        for _ in 0..PASSES {
            let pass = iterator.pass(|record| {
                if let Some(i) = place.get(&record.lwp()).copied()
                    && !is_seen[i]
                {
                    is_seen[i] = true;
                    answers[i] = record.facts();
                }
            });
            pass.ok()?;
            if is_seen.iter().filter(|seen| !**seen).count() <= FEW {
                break;
            }
        }
        // Passes go by the number of the process. It cannot have got another owner, since the process
        // that was opened still has it; but had that gone, all this would be of a stranger.
        self.has_thread(self.pid.leader()).then_some(answers)
    }
}
