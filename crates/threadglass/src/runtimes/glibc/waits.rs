//! From a wait and the call that led to it to the object that is waited for.
//!
//! The call decides. Numbers (operation, value, offset) place the object around the word. Where there is
//! no call to be had, [`super::guess`] looks at numbers and contents, and says that it guessed.

use super::locks::CondLayout;
use crate::RemoteAddr;
use crate::model::{Evidence, Family, Side, SyncKind};
use crate::runtimes::{Class, FutexOp, FutexWait};

/// A function that waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Mutex,
    Cond,
    /// Signals a condition variable, which may wait for its inner lock.
    CondSignal,
    Rwlock(Side),
    /// Something that is waited for in one way.
    Plain(SyncKind),
    /// The system call itself: what it is for is known by who made it.
    Raw,
}

impl Waiting {
    /// By the name of a function of libc.
    pub(super) fn in_libc(function: &str) -> Option<Self> {
        let name = function.trim_start_matches('_');
        let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
        let name = name.split(['@', '.']).next().unwrap_or(name);
        // With a deadline, by any clock and with 64 bits of time: what is waited for is the same.
        let name = name.trim_end_matches("64").replace("timed", "").replace("clock", "");
        Some(match name.as_str() {
            "pthread_mutex_lock" | "pthread_mutex_lock_full" | "pthread_mutex_lock_common" | "mtx_lock" => Self::Mutex,
            "pthread_mutex_cond_lock" | "pthread_mutex_cond_lock_full" => Self::Mutex,
            "pthread_cond_wait" | "cnd_wait" => Self::Cond,
            "pthread_cond_signal" | "pthread_cond_broadcast" | "pthread_cond_destroy" => Self::CondSignal,
            "cnd_signal" | "cnd_broadcast" | "cnd_destroy" => Self::CondSignal,
            "pthread_rwlock_rdlock" => Self::Rwlock(Side::Read),
            "pthread_rwlock_wrlock" => Self::Rwlock(Side::Write),
            "sem_wait" | "new_sem_wait" | "new_sem_wait_slow" => Self::Plain(SyncKind::Semaphore),
            "pthread_barrier_wait" => Self::Plain(SyncKind::Barrier),
            "pthread_once" | "pthread_once_slow" | "call_once" => Self::Plain(SyncKind::Once),
            "pthread_join" | "pthread_join_np" | "pthread_join_ex" | "thrd_join" => Self::Plain(SyncKind::Join),
            "syscall" => Self::Raw,
            _ => return None,
        })
    }
}

/// The object of a wait that `waiting` made. `is_mutex` says whether the bytes at an address can be a
/// mutex. `None` when the numbers do not fit such a wait, and for what is decided elsewhere.
pub(super) fn classify(
    waiting: Waiting,
    wait: &FutexWait,
    evidence: Evidence,
    cond: CondLayout,
    is_mutex: impl FnOnce(RemoteAddr) -> bool,
) -> Option<Class> {
    let class = |kind, address: Option<RemoteAddr>, side| {
        Some(Class { side, ..Class::new(kind, Family::Pthread, address?, evidence) })
    };
    let word = wait.word;
    match waiting {
        // Nobody waits for the end of 0 there: this word is none of a mutex.
        Waiting::Mutex if wait.is_hopeless() => None,
        Waiting::Mutex => class(SyncKind::Mutex, Some(word), None),
        // Awake again, it takes its mutex back: a wait of another form, on another word.
        Waiting::Cond if wait.op != FutexOp::WaitBitset && wait.value != 0 && is_mutex(word) => {
            class(SyncKind::Mutex, Some(word), None)
        }
        // Up to 2.32 a wait without a deadline is a plain one, for the end of 0.
        Waiting::Cond if wait.op == FutexOp::WaitBitset || wait.value == 0 => {
            class(SyncKind::Cond, cond_around(word, cond), None)
        }
        Waiting::Cond | Waiting::CondSignal => class(SyncKind::Cond, signaller(word, cond), None),
        Waiting::Rwlock(side) => {
            // Readers wait for the end of the write phase, or (behind a preferred writer) on the word that
            // counts them; the first writer waits for its phase, all others for that writer.
            let offset = match (side, wait.value) {
                (Side::Read, value) if value & 4 != 0 => 0,
                (Side::Read, _) => 8,
                (Side::Write, 2) => 8,
                (Side::Write, _) => 12,
            };
            class(SyncKind::Rwlock, word.checked_sub(offset), Some(side))
        }
        Waiting::Plain(SyncKind::Barrier) => class(SyncKind::Barrier, word.checked_sub(4), None),
        Waiting::Plain(kind) => class(kind, Some(word), None),
        Waiting::Raw => None,
    }
}

/// The condition variable one of whose two words is `word`. They are aligned to eight bytes, so the
/// address tells which of the two it is.
pub(super) fn cond_around(word: RemoteAddr, layout: CondLayout) -> Option<RemoteAddr> {
    word.checked_sub(word.0 % 8)?.checked_sub(layout.signals()?)
}

/// The condition variable that a signaller waits in: for its inner lock, or (the old layout only) for a
/// group of waiters to leave.
fn signaller(word: RemoteAddr, layout: CondLayout) -> Option<RemoteAddr> {
    // Both words stand before those that waiters wait on.
    let before = if word.0.is_multiple_of(8) { 8 } else { 4 };
    word.checked_sub(layout.signals()? - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions() {
        assert_eq!(Waiting::in_libc("pthread_mutex_lock"), Some(Waiting::Mutex));
        assert_eq!(Waiting::in_libc("___pthread_mutex_lock"), Some(Waiting::Mutex));
        assert_eq!(Waiting::in_libc("__GI___pthread_rwlock_wrlock"), Some(Waiting::Rwlock(Side::Write)));
        assert_eq!(Waiting::in_libc("__new_sem_wait_slow64.constprop.0"), Some(Waiting::Plain(SyncKind::Semaphore)));
        assert_eq!(Waiting::in_libc("printf"), None);
    }
}
