//! Facts of threads that have not run since they were read, for who looks at one process again and again.
//!
//! A thread that sleeps cannot change its call, its registers or its state without getting a CPU, and the kernel counts how often
//! it gets one. So for most threads of a later look one small file is read, which stays open, in place of three.

use super::Live;
use crate::Lwp;
use crate::proc::{KernelState, SchedCounters, SyscallFile, parse_schedstat};
use crate::sys::file;
use crate::target::LwpFacts;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many files stay open at most: the usual limit of open files is 1024.
const OPEN: usize = 256;

/// What others can change of a thread that sleeps on (its name, its priority, who traces it, pending signals) is read anew after
/// this time. Threads differ by the number of parts, so that not all are read in one look.
const GOOD_FOR: Duration = Duration::from_secs(5);
const PARTS: i32 = 8;

/// What was read of one process so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KeptFacts(Arc<Mutex<HashMap<Lwp, Kept>>>);

#[derive(Debug)]
struct Kept {
    /// Open, where not too many are: a thread that gets the number of an ended one has other files.
    schedstat: Option<File>,
    /// As they were before the facts were read.
    counters: SchedCounters,
    facts: LwpFacts,
    until: Instant,
}

impl KeptFacts {
    /// Facts of each of `lwps`: those that are known, where the thread has not run since; else read by `read`.
    pub(super) fn facts(
        &self,
        live: &Live,
        lwps: &[Lwp],
        read: impl FnOnce(&[Lwp]) -> Vec<Option<LwpFacts>>,
    ) -> Vec<Option<LwpFacts>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut reader =
            Reader { live, buf: Vec::new(), open: kept.values().filter(|it| it.schedstat.is_some()).count() };
        let mut facts = vec![None; lwps.len()];
        let mut open = Vec::new();
        for (place, lwp) in lwps.iter().enumerate() {
            let known = kept.get(lwp);
            let counters = reader.counters(*lwp, known);
            match known.zip(counters) {
                Some((known, counters)) if known.counters == counters && now < known.until => {
                    facts[place] = Some(known.facts.clone());
                }
                _ => open.push((place, counters)),
            }
        }
        let missing: Vec<Lwp> = open.iter().map(|(place, _)| lwps[*place]).collect();
        for ((place, counters), found) in open.into_iter().zip(read(&missing)) {
            let lwp = lwps[place];
            let before = kept.remove(&lwp);
            if let (Some(counters), Some(found)) = (counters, found.as_ref().filter(|found| stays(found))) {
                let part = GOOD_FOR / PARTS.unsigned_abs() * lwp.0.rem_euclid(PARTS).unsigned_abs();
                let schedstat = before.and_then(|it| it.schedstat).or_else(|| reader.open(lwp));
                kept.insert(lwp, Kept { schedstat, counters, facts: found.clone(), until: now + GOOD_FOR + part });
            }
            facts[place] = found;
        }
        facts
    }

    /// Forgets all threads but those that exist.
    pub(super) fn retain(&self, lwps: &[Lwp]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > lwps.len() {
            let there: std::collections::HashSet<Lwp> = lwps.iter().copied().collect();
            kept.retain(|lwp, _| there.contains(lwp));
        }
    }
}

/// Whether what was read holds until the thread runs: it was off the CPU when its call was read.
fn stays(facts: &LwpFacts) -> bool {
    let sleeps = matches!(facts.state, KernelState::Sleeping | KernelState::DiskSleep);
    sleeps && facts.syscall.is_some_and(|call| call != SyscallFile::Running)
}

struct Reader<'a> {
    live: &'a Live,
    buf: Vec<u8>,
    open: usize,
}

impl Reader<'_> {
    /// The counters of a thread now. `None` also where the kernel does not count: then all are zero.
    fn counters(&mut self, lwp: Lwp, known: Option<&Kept>) -> Option<SchedCounters> {
        let counters = match known.and_then(|known| known.schedstat.as_ref()) {
            Some(file) => {
                self.buf.resize(128, 0);
                let got = file.read_at(&mut self.buf, 0).ok()?;
                parse_schedstat(self.buf.get(..got)?)
            }
            None => parse_schedstat(file::read_record(&self.live.task_dir, &name(lwp)?, &mut self.buf).ok()?),
        };
        counters.filter(|counters| counters.timeslices > 0)
    }

    fn open(&mut self, lwp: Lwp) -> Option<File> {
        if self.open >= OPEN {
            return None;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(&self.live.task_dir, name(lwp)?.as_c_str(), flags, Mode::empty()).ok()?;
        self.open += 1;
        Some(File::from(file))
    }
}

fn name(lwp: Lwp) -> Option<CString> {
    CString::new(format!("{lwp}/schedstat")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;
    use crate::target::KernelFacts;
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::thread;

    /// The call in which the kernel says that a thread sleeps now; none while it runs.
    fn call_now(live: &Live, lwp: Lwp) -> Option<i64> {
        let facts = live.facts_by_proc(&[lwp]).pop().flatten()?;
        match facts.syscall {
            Some(SyscallFile::Inside { number, .. }) if stays(&facts) => Some(number),
            _ => None,
        }
    }

    /// Waits until a thread sleeps in a call, but in another one than `before`.
    fn wait_for_other(live: &Live, lwp: Lwp, before: Option<i64>) -> Option<i64> {
        loop {
            match call_now(live, lwp) {
                call if call.is_some() && call != before => return call,
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn who_has_run_is_read_again() {
        let (go, may_go) = channel();
        let (told, lwp) = channel();
        let (mut input, output) = std::io::pipe().unwrap();
        let other = thread::spawn(move || {
            told.send(Lwp(nix::unistd::gettid().as_raw())).unwrap();
            may_go.recv().unwrap();
            input.read_exact(&mut [0]).unwrap_err();
        });
        let lwp = lwp.recv().unwrap();
        let plain = Live::open(Pid::me()).unwrap();
        let kept = KeptFacts::default();
        let live = Live::open(Pid::me()).unwrap().keeping(&kept);
        let call = wait_for_other(&plain, lwp, None);
        let first = live.facts(&[lwp]);
        assert_eq!(first, plain.facts_by_proc(&[lwp]));
        // It has not run: nothing more is read of it.
        let again = kept.facts(&live, &[lwp], |missing| {
            assert!(missing.is_empty(), "{missing:?}");
            Vec::new()
        });
        assert_eq!(again, first);
        // Now it has, and waits elsewhere.
        go.send(()).unwrap();
        wait_for_other(&plain, lwp, call);
        assert_eq!(live.facts(&[lwp]), plain.facts_by_proc(&[lwp]));
        assert_ne!(live.facts(&[lwp]), first);
        drop(output);
        other.join().unwrap();
        while plain.has_thread(lwp) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(live.facts(&[lwp]), [None]);
        assert!(kept.0.lock().unwrap().is_empty());
    }
}
