//! What a wait is for, by its numbers and by what lies around the word: for programs that have no call
//! to go by (static ones without symbols, libc's own locks, foreign cores).
//!
//! Numbers alone are ambiguous, so everything that fits is tried against the contents, and only what is
//! left alone counts; it is `inferred` at best, but for the two forms that nothing else has.

use super::locks::{CondLayout, FUTEX_WAITERS, Mutex, Rwlock, decode, size_of};
use super::waits::cond_around;
use crate::model::{Detail, Evidence, Family, Side, SyncKind};
use crate::runtimes::{Class, Content, Context, FutexOp, FutexWait};
use crate::{InnerTid, RemoteAddr};

/// What the guess may know of the target.
pub(super) struct Guesser<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) cond: CondLayout,
}

impl Guesser<'_> {
    /// The object of `wait`; `None` when nothing fits, or more than one thing does.
    pub(super) fn guess(&self, wait: &FutexWait) -> Option<Class> {
        // Only priority-inheriting mutexes make the kernel the judge, and only robust ones are waited for in the second form.
        let is_robust = wait.op == FutexOp::Wait && !wait.private && wait.value & FUTEX_WAITERS != 0;
        if wait.op == FutexOp::LockPi || is_robust {
            return self.fits(SyncKind::Mutex, wait.word, None, Evidence::Derived);
        }
        // libc names the wall clock in every such wait that has no deadline: this is somebody else's.
        if wait.op == FutexOp::WaitBitset && !wait.timed && !wait.realtime {
            return None;
        }
        let [one] = self.candidates(wait)[..] else { return None };
        Some(one)
    }

    fn candidates(&self, wait: &FutexWait) -> Vec<Class> {
        let (word, value) = (wait.word, wait.value);
        let inferred = |kind, address: Option<RemoteAddr>, side| {
            address.and_then(|address| self.fits(kind, address, side, Evidence::Inferred))
        };
        let mut found = Vec::new();
        // Without a deadline, a mutex is waited for by the plain call.
        if value == 2 && (wait.op == FutexOp::Wait || wait.timed) {
            found.extend(inferred(SyncKind::Mutex, Some(word), None));
        }
        match wait.op {
            FutexOp::Wait => {
                found.extend(inferred(SyncKind::Barrier, word.checked_sub(4), None));
                if value & 3 == 1 {
                    found.extend(inferred(SyncKind::Once, Some(word), None));
                }
                if value == 0 {
                    found.extend(self.conds(word));
                }
            }
            FutexOp::WaitBitset => {
                if value == 0 {
                    found.extend(inferred(SyncKind::Semaphore, Some(word), None));
                }
                found.extend(self.conds(word));
                if value == 3 {
                    found.extend(inferred(SyncKind::Rwlock, word.checked_sub(8), Some(Side::Read)));
                    found.extend(inferred(SyncKind::Rwlock, word.checked_sub(12), Some(Side::Write)));
                }
                if value == 2 {
                    found.extend(inferred(SyncKind::Rwlock, word.checked_sub(8), Some(Side::Write)));
                }
                if value & 4 != 0 {
                    found.extend(inferred(SyncKind::Rwlock, Some(word), Some(Side::Read)));
                }
            }
            FutexOp::LockPi | FutexOp::WaitRequeuePi => {}
        }
        found
    }

    /// Condition variables that threads can wait for on `word`.
    fn conds(&self, word: RemoteAddr) -> Vec<Class> {
        let layouts = match self.cond {
            CondLayout::Unknown => vec![CondLayout::Old, CondLayout::New],
            known => vec![known],
        };
        let fit = |layout| {
            let guesser = Guesser { cond: layout, ..*self };
            guesser.fits(SyncKind::Cond, cond_around(word, layout)?, None, Evidence::Inferred)
        };
        layouts.into_iter().filter_map(fit).collect()
    }

    /// An object of `kind` at `address`, if what lies there is one that can have waiters now.
    fn fits(&self, kind: SyncKind, address: RemoteAddr, side: Option<Side>, evidence: Evidence) -> Option<Class> {
        let bytes = self.context.target.read_vec(address, size_of(kind)?).ok()?;
        let content = decode(kind, &bytes, self.cond)?;
        let class = Class { side, ..Class::new(kind, Family::Pthread, address, evidence) };
        (content.is_plausible && self.can_be_waited_for(&content)).then_some(class)
    }

    fn can_be_waited_for(&self, content: &Content) -> bool {
        let may_be_owned = || {
            let owner = content.owner_tid();
            content.shared != Some(false) || owner.is_none_or(|owner| self.context.has_thread(owner))
        };
        match content.detail {
            Detail::Mutex { .. } => content.has_waiters && may_be_owned(),
            Detail::Rwlock { .. } => content.state.is_held() && content.has_waiters && may_be_owned(),
            Detail::Barrier { .. } | Detail::Cond { .. } | Detail::Semaphore { .. } => content.has_waiters,
            _ => content.state.is_held(),
        }
    }
}

/// Whether `bytes` are a mutex that a thread of the target holds, as all of its fields say.
pub(super) fn held_mutex(bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> bool {
    Mutex::new(bytes).is_some_and(|mutex| {
        let held = mutex.is_plausible() && mutex.state().is_held() && mutex.users > 0;
        held && mutex.owner().is_some_and(is_thread)
    })
}

/// Whether `bytes` are a rwlock that a thread of the target holds for writing.
pub(super) fn held_rwlock(bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> bool {
    Rwlock::new(bytes).is_some_and(|lock| {
        let written = lock.is_plausible() && lock.phase_futex & lock.writers_futex & 1 == 1;
        written && lock.owner().is_some_and(is_thread)
    })
}
