//! What taking and releasing a lock looks like: calls of known functions, and changes of the lock's word.

use super::WantedLock;
use super::machine::{Atomic, Change};
use crate::runtimes::{self, Effect, LockWord};
use std::cmp::Ordering;

/// What `atomic` does to `wanted`, if it is about that lock.
pub(super) fn of_atomic(wanted: &WantedLock, atomic: &Atomic) -> Option<Effect> {
    let word = word_of(wanted);
    if atomic.addr? != wanted.address.0.wrapping_add(word.at) || !word.sizes.contains(&atomic.size) {
        return None;
    }
    match change_of(&word, atomic.change)? {
        Ordering::Greater => Some(Effect::Take),
        Ordering::Less => Some(Effect::Release),
        Ordering::Equal => word.is_called.then_some(Effect::Take),
    }
}

/// Whether `change` makes a word more held, or less; `None` if its numbers are not known.
fn change_of(word: &LockWord, change: Change) -> Option<Ordering> {
    Some(match change {
        // A mutex is swapped to nothing or to "locked", a once to "done".
        Change::Swap(value) if (word.held)(value?) == 0 => Ordering::Less,
        Change::Swap(_) => Ordering::Greater,
        Change::Add(by) => (word.added)(by?).cmp(&0),
        Change::Exchange(from, to) => (word.held)(to?).cmp(&(word.held)(from?)),
    })
}

/// How the word of `wanted` tells that it is held.
pub(super) fn word_of(wanted: &WantedLock) -> LockWord {
    runtimes::of(wanted.family).lock_word(wanted.kind, wanted.family)
}

/// Whether `atomic`, of which not all is known, may take `wanted`: it is a lock of that kind, or that one. An exchange of which
/// neither the place nor the numbers are known is no sign of it: libraries are full of these (allocators with masks of blocks).
pub(super) fn may_take(wanted: &WantedLock, atomic: &Atomic) -> bool {
    let word = word_of(wanted);
    // Called by name, where that is not linked in.
    let is_inlined = !word.is_called && word.sizes == [atomic.size];
    atomic.addr.is_none_or(|addr| addr == wanted.address.0.wrapping_add(word.at))
        && is_inlined
        && matches!(atomic.change, Change::Exchange(..))
        && change_of(&word, atomic.change).map_or(atomic.addr.is_some(), Ordering::is_gt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;
    use crate::model::{Family, SyncKind};
    use crate::runtimes::{Function, function};

    #[test]
    fn functions_by_name() {
        for name in ["pthread_rwlock_rdlock", "__pthread_mutex_lock", "sem_timedwait", "pthread_rwlock_timedwrlock"] {
            assert_eq!(function(name), Function::Lock(Effect::Take), "{name}");
        }
        for name in ["pthread_mutex_trylock", "pthread_rwlock_tryrdlock", "pthread_rwlock_clockrdlock", "mtx_timedlock"]
        {
            assert_eq!(function(name), Function::Lock(Effect::Take), "{name}");
        }
        for name in ["pthread_rwlock_unlock", "sem_post", "mtx_unlock", "__cxa_guard_release", "__cxa_guard_abort"] {
            assert_eq!(function(name), Function::Lock(Effect::Release), "{name}");
        }
        for name in ["pthread_mutex_init", "pthread_rwlock_destroy", "sem_init", "sem_getvalue", "read"] {
            assert_eq!(function(name), Function::Plain, "{name}");
        }
        for name in ["pthread_cond_wait", "__pthread_cond_timedwait", "cnd_wait", "g_cond_wait"] {
            assert_eq!(function(name), Function::Waits, "{name}");
        }
        assert_eq!(function("abort"), Function::Never);
        assert_eq!(function("_ZSt20__throw_system_errori"), Function::Never);
    }

    #[test]
    fn changes_of_words() {
        let lock = |family, kind| WantedLock { address: RemoteAddr(0x1000), size: 4, kind, family };
        let at = |change| Atomic { addr: Some(0x1000), size: 4, change };
        let (mutex, rwlock) = (lock(Family::RustStd, SyncKind::Mutex), lock(Family::RustStd, SyncKind::Rwlock));
        let semaphore = lock(Family::Pthread, SyncKind::Semaphore);
        let cases = [
            (&mutex, Change::Swap(Some(0)), Some(Effect::Release)),
            (&mutex, Change::Swap(Some(2)), Some(Effect::Take)),
            (&mutex, Change::Exchange(Some(0), Some(1)), Some(Effect::Take)),
            (&mutex, Change::Exchange(Some(1), Some(2)), None),
            (&rwlock, Change::Add(Some(-1)), Some(Effect::Release)),
            (&rwlock, Change::Exchange(Some(1), Some(2)), Some(Effect::Take)),
            (&rwlock, Change::Exchange(Some(0xc000_0000), Some(0x4000_0000)), None),
            (&semaphore, Change::Exchange(Some(1 << 32), Some((1 << 32) + 1)), Some(Effect::Release)),
            (&semaphore, Change::Add(Some(1 << 32)), Some(Effect::Take)),
            (&semaphore, Change::Exchange(Some(1), Some(0)), Some(Effect::Take)),
        ];
        for (lock, change, effect) in cases {
            assert_eq!(of_atomic(lock, &at(change)), effect, "{lock:?} {change:?}");
        }
        let elsewhere = Atomic { addr: Some(0x1004), size: 4, change: Change::Swap(Some(0)) };
        assert_eq!(of_atomic(&mutex, &elsewhere), None);
        let unplaced = |change| Atomic { addr: None, size: 4, change: Change::Exchange(change, Some(1)) };
        assert!(may_take(&mutex, &unplaced(Some(0))));
        assert!(!may_take(&mutex, &unplaced(Some(2))), "locked before and after");
        assert!(!may_take(&mutex, &unplaced(None)), "neither place nor numbers");
        assert!(may_take(&mutex, &at(Change::Exchange(None, Some(1)))), "its place");
        let once = WantedLock { size: 1, ..lock(Family::ParkingLot, SyncKind::Once) };
        let done = Atomic { addr: Some(0x1000), size: 1, change: Change::Swap(Some(1)) };
        assert_eq!(of_atomic(&once, &done), Some(Effect::Release), "done");
    }
}
