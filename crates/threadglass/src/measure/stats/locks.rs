//! Telling waits for locks from other sleep, by samples of what threads are blocked in.

use crate::look::waits::{Sleeper, Survey};
use crate::measure::bounded;
use crate::model::SyncKind;
use crate::proc::SyscallFile;
use crate::runtimes::{FutexOp, FutexWait};
use crate::sys::clock::own_cpu;
use crate::{Lwp, RemoteAddr};
use std::collections::HashMap;
use std::time::Duration;

/// How many waits are looked at closely after one sample.
const AT_ONCE: usize = 64;
/// How many different words one thread may be seen to wait on in an interval.
const WORDS: usize = 64;

/// A way of waiting on a word. All who wait so, wait for the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaitKey(RemoteAddr, FutexOp);

impl WaitKey {
    fn of(call: &SyscallFile) -> Option<Self> {
        FutexWait::of(call).map(|wait| Self(wait.word, wait.op))
    }
}

/// In how many samples of an interval a thread was asleep, and where.
#[derive(Debug, Default)]
pub(super) struct Tally {
    asleep: u32,
    on_word: HashMap<WaitKey, u32>,
}

impl Tally {
    /// Adds a sample.
    pub(super) fn add(&mut self, call: &SyscallFile) {
        if *call == SyscallFile::Running {
            return;
        }
        self.asleep += 1;
        if let Some(count) = WaitKey::of(call).and_then(|key| bounded(&mut self.on_word, key, WORDS)) {
            *count += 1;
        }
    }
}

/// What the words are that threads wait on.
pub(super) struct Locks<'a> {
    survey: Survey<'a>,
    /// Whether it is a lock; `None` where that could not be told.
    known: HashMap<WaitKey, Option<bool>>,
    spent: Duration,
}

impl<'a> Locks<'a> {
    pub(super) fn new(survey: Survey<'a>) -> Self {
        Self { survey, known: HashMap::new(), spent: Duration::ZERO }
    }

    /// An interval begins: memory may be used for something else by now.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.spent = Duration::ZERO;
    }

    /// Looks at those of `sleepers` whose words are not known yet, as far as there is time for it: a tenth of
    /// what has `passed`. `now` tells what a thread is blocked in now: what was found out about one that has
    /// moved on meanwhile is not believed.
    pub(super) fn learn(
        &mut self,
        sleepers: Vec<Sleeper>,
        passed: Duration,
        mut now: impl FnMut(Lwp) -> Option<SyscallFile>,
    ) {
        if self.spent > passed / 10 {
            return;
        }
        let before = own_cpu();
        let mut wanted: HashMap<WaitKey, Sleeper> = HashMap::new();
        for sleeper in sleepers {
            if let Some(key) = WaitKey::of(&sleeper.1)
                && !self.known.contains_key(&key)
                && wanted.len() < AT_ONCE
            {
                wanted.entry(key).or_insert(sleeper);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let sleepers: Vec<Sleeper> = wanted.into_values().collect();
        let calls: HashMap<Lwp, SyscallFile> = sleepers.iter().copied().collect();
        for (lwp, wait, kind) in self.survey.kinds(&sleepers) {
            if now(lwp).as_ref() == calls.get(&lwp) {
                self.known.insert(WaitKey(wait.word, wait.op), is_lock(kind));
            }
        }
        self.spent += own_cpu().saturating_sub(before);
    }

    /// Which part of a thread's sleep was waiting for locks, and which part may have been.
    pub(super) fn share(&self, tally: &Tally) -> (f64, f64) {
        if tally.asleep == 0 {
            return (0.0, 0.0);
        }
        let (mut locks, mut untold) = (0, 0);
        for (key, count) in &tally.on_word {
            match self.known.get(key) {
                Some(Some(true)) => locks += count,
                Some(Some(false)) => {}
                Some(None) | None => untold += count,
            }
        }
        let part = |count: u32| f64::from(count) / f64::from(tally.asleep);
        (part(locks), part(untold))
    }
}

/// Whether who waits for it wants to go on and is kept from it by another thread, rather than having nothing to do.
fn is_lock(kind: SyncKind) -> Option<bool> {
    match kind {
        SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Spinlock | SyncKind::Once => Some(true),
        // Nobody holds a semaphore: who waits for one waits for something to happen.
        SyncKind::Semaphore
        | SyncKind::Cond
        | SyncKind::Barrier
        | SyncKind::Join
        | SyncKind::Channel
        | SyncKind::WaitGroup
        | SyncKind::Park => Some(false),
        SyncKind::Futex => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_bounded() {
        let call = |word: u64| SyscallFile::Inside {
            number: crate::arch::syscall::FUTEX,
            args: [word, 0x80, 2, 0, 0, 0],
            sp: RemoteAddr::NULL,
            pc: RemoteAddr::NULL,
        };
        let mut tally = Tally::default();
        tally.add(&SyscallFile::Running);
        for word in 0..1000 {
            tally.add(&call(0x10000 + word * 8));
        }
        assert_eq!((tally.asleep, tally.on_word.len()), (1000, WORDS));
        tally.add(&call(0x10000));
        assert_eq!(tally.on_word[&WaitKey(RemoteAddr(0x10000), FutexOp::Wait)], 2);
    }
}
