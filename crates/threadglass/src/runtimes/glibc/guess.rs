//! What a wait is for, by its numbers and by what lies around the word: for programs that have no call
//! to go by (static ones without symbols, libc's own locks, foreign cores).
//!
//! Numbers alone are ambiguous, so everything that fits is tried against the contents, and only what is
//! left alone counts; it is `inferred` at best, but for the two forms that nothing else has.

use super::locks::{CondLayout, Decoded, FUTEX_WAITERS, Mutex, Rwlock, decode, size_of};
use super::waits::cond_around;
use crate::memory::Memory;
use crate::model::{Detail, Evidence, Family, Side, SyncKind};
use crate::runtimes::{Class, FutexOp, FutexWait};
use crate::{InnerTid, RemoteAddr};

/// What the guess may know of the target.
pub(super) struct Around<'a> {
    pub(super) memory: &'a dyn Memory,
    pub(super) cond: CondLayout,
    /// Whether a thread of the target has this id.
    pub(super) is_thread: &'a dyn Fn(InnerTid) -> bool,
}

impl Around<'_> {
    /// The object of `wait`; `None` when nothing fits, or more than one thing does.
    pub(super) fn guess(&self, wait: &FutexWait) -> Option<Class> {
        if wait.op == FutexOp::LockPi {
            // Nothing but priority-inheriting mutexes makes the kernel the judge.
            return self.fits(SyncKind::Mutex, wait.word, None, Evidence::Derived);
        }
        if wait.op == FutexOp::Wait && !wait.private && wait.value & FUTEX_WAITERS != 0 {
            return self.fits(SyncKind::Mutex, wait.word, None, Evidence::Derived);
        }
        // libc names the wall clock in every such wait that has no deadline: this is somebody else's.
        if wait.op == FutexOp::WaitBitset && !wait.timed && !wait.realtime {
            return None;
        }
        let candidates: Vec<Class> = self.candidates(wait);
        match candidates.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    fn candidates(&self, wait: &FutexWait) -> Vec<Class> {
        let word = wait.word;
        let inferred = |kind, address: Option<RemoteAddr>, side| {
            address.and_then(|address| self.fits(kind, address, side, Evidence::Inferred))
        };
        let mut found = Vec::new();
        match (wait.op, wait.value) {
            // Without a deadline, a mutex is waited for by the plain call.
            (op, 2) if op == FutexOp::Wait || wait.timed => {
                found.extend(inferred(SyncKind::Mutex, Some(word), None));
            }
            _ => {}
        }
        match (wait.op, wait.value) {
            (FutexOp::Wait, value) => {
                found.extend(inferred(SyncKind::Barrier, word.checked_sub(4), None));
                if value & 3 == 1 {
                    found.extend(inferred(SyncKind::Once, Some(word), None));
                }
                if value == 0 {
                    found.extend(self.conds(word));
                }
            }
            (FutexOp::WaitBitset, value) => {
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
            _ => {}
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
            let around = Around { cond: layout, ..*self };
            around.fits(SyncKind::Cond, cond_around(word, layout)?, None, Evidence::Inferred)
        };
        layouts.into_iter().filter_map(fit).collect()
    }

    /// An object of `kind` at `address`, if what lies there is one that can have waiters now.
    fn fits(&self, kind: SyncKind, address: RemoteAddr, side: Option<Side>, evidence: Evidence) -> Option<Class> {
        let mut bytes = vec![0; size_of(kind)?];
        self.memory.read_exact(address, &mut bytes).ok()?;
        let decoded = decode(kind, &bytes, self.cond)?;
        (decoded.is_plausible && self.can_be_waited_for(&decoded)).then_some(Class {
            kind,
            family: Family::Pthread,
            address,
            side,
            evidence,
        })
    }

    fn can_be_waited_for(&self, decoded: &Decoded) -> bool {
        let may_be_owner = |owner| decoded.shared != Some(false) || (self.is_thread)(owner);
        match decoded.detail {
            Detail::Mutex { .. } => decoded.has_waiters && decoded.owner.is_none_or(may_be_owner),
            Detail::Rwlock { .. } => {
                decoded.state.is_held() && decoded.has_waiters && decoded.owner.is_none_or(may_be_owner)
            }
            Detail::Barrier { .. } | Detail::Cond { .. } | Detail::Semaphore { .. } => decoded.has_waiters,
            _ => decoded.state.is_held(),
        }
    }
}

/// Whether `bytes` are a mutex that a thread of the target holds, as all of its fields say.
pub(super) fn held_mutex(bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> bool {
    let (Some(mutex), Some(decoded)) = (Mutex::new(bytes), decode(SyncKind::Mutex, bytes, CondLayout::Unknown)) else {
        return false;
    };
    let held = decoded.is_plausible && decoded.state.is_held() && mutex.users > 0;
    held && decoded.owner.is_some_and(is_thread)
}

/// Whether `bytes` are a rwlock that a thread of the target holds for writing.
pub(super) fn held_rwlock(bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> bool {
    Rwlock::new(bytes).is_some_and(|lock| {
        let written = lock.is_plausible() && lock.phase_futex & lock.writers_futex & 1 == 1;
        written && lock.owner().is_some_and(is_thread)
    })
}

/// Whether a mutex that threads wait for can be at `addr`.
pub(super) fn is_waited_mutex(memory: &dyn Memory, addr: RemoteAddr) -> bool {
    let mut bytes = [0; 40];
    memory.read_exact(addr, &mut bytes).is_ok()
        && decode(SyncKind::Mutex, &bytes, CondLayout::Unknown)
            .is_some_and(|mutex| mutex.is_plausible && mutex.has_waiters)
}
