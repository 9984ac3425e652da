//! What taking and releasing a lock looks like: calls of known functions, and changes of the lock's word.

use super::Wanted;
use super::machine::{Atomic, Change};
use crate::model::{Family, SyncKind};

/// What something does to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Take,
    Release,
}

/// What a call of a function with a name means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Takes or releases the lock that is its first argument.
    Lock(Effect),
    /// Does not come back; also where an exception is caught, or goes on to the next frame.
    Never,
    /// Nothing that matters.
    Plain,
}

const TAKES: [&str; 7] = ["lock", "trylock", "timedlock", "clocklock", "rdlock", "wrlock", "wait"];
const NEVER: [&str; 18] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "pthread_exit",
    "thrd_exit",
    "longjmp",
    "siglongjmp",
    "__assert_fail",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "_Unwind_Resume",
    "_Unwind_RaiseException",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_begin_catch",
];

/// What a call of `name` means.
pub(super) fn named(name: &str) -> Named {
    if NEVER.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_") || name == "_ZSt9terminatev" {
        return Named::Never;
    }
    let plain = name.trim_start_matches('_');
    match plain {
        "cxa_guard_acquire" => return Named::Lock(Effect::Take),
        "cxa_guard_release" | "cxa_guard_abort" => return Named::Lock(Effect::Release),
        _ => {}
    }
    let rest = ["pthread_mutex_", "pthread_rwlock_", "pthread_spin_", "mtx_"]
        .iter()
        .find_map(|prefix| plain.strip_prefix(prefix));
    let effect = match (rest, plain.strip_prefix("sem_")) {
        (Some("unlock"), _) | (_, Some("post")) => Some(Effect::Release),
        (Some(rest), _) => {
            let rest = rest.trim_start_matches("timed").trim_start_matches("try").trim_start_matches("clock");
            TAKES.contains(&rest).then_some(Effect::Take)
        }
        (_, Some("wait" | "trywait" | "timedwait" | "clockwait")) => Some(Effect::Take),
        _ => None,
    };
    effect.map_or(Named::Plain, Named::Lock)
}

/// What `atomic` does to `wanted`, if it is about that lock.
pub(super) fn of_atomic(wanted: &Wanted, atomic: &Atomic) -> Option<Effect> {
    if atomic.addr? != wanted.address.0 || !has_size(wanted, atomic.size) {
        return None;
    }
    let (from, to) = match atomic.change {
        Change::Swap(value) => {
            // Only mutexes are swapped: to nothing, or to "locked".
            return Some(if value? == 0 { Effect::Release } else { Effect::Take });
        }
        Change::Add(by) => {
            let by = by?;
            let by = match (wanted.family, wanted.kind) {
                (_, SyncKind::Semaphore) => i64::from(by as i32).wrapping_neg(),
                (Family::Pthread, SyncKind::Rwlock) => by >> 3,
                _ => by,
            };
            return match by.signum() {
                1 => Some(Effect::Take),
                -1 => Some(Effect::Release),
                _ => queues(wanted),
            };
        }
        Change::Exchange(from, to) => (from?, to?),
    };
    // The part of the word that says how much it is held.
    let held = |word: u64| match (wanted.family, wanted.kind) {
        // What can still be taken is in the lower half.
        (_, SyncKind::Semaphore) => u64::from(u32::MAX - word as u32),
        // Readers, and the bit of a writer.
        (Family::Pthread, SyncKind::Rwlock) => ((word & u64::from(u32::MAX)) >> 3) + (word >> 1 & 1),
        (Family::RustStd, SyncKind::Rwlock) => word & 0x3fff_ffff,
        (Family::ParkingLot, SyncKind::Rwlock) => word & !7,
        (Family::ParkingLot, _) => word & 1,
        _ => u64::from(word != 0),
    };
    match held(to).cmp(&held(from)) {
        std::cmp::Ordering::Greater => Some(Effect::Take),
        std::cmp::Ordering::Less => Some(Effect::Release),
        std::cmp::Ordering::Equal => queues(wanted),
    }
}

/// Whether the word of `wanted` has this many bytes.
fn has_size(wanted: &Wanted, size: u8) -> bool {
    match (wanted.family, wanted.kind) {
        (Family::RustStd, _) => size == 4,
        (Family::ParkingLot, SyncKind::Mutex) => size == 1,
        (Family::ParkingLot, _) => size == 8,
        (_, SyncKind::Semaphore) => size >= 4,
        (Family::Pthread, SyncKind::Rwlock) => size == 4,
        _ => true,
    }
}

/// What a change means that neither takes nor releases: only who wants a lock of POSIX threads queues for it
/// in its word. (Others do such things after a release, too.)
fn queues(wanted: &Wanted) -> Option<Effect> {
    matches!(wanted.family, Family::Pthread | Family::Cxx | Family::Libc).then_some(Effect::Take)
}

/// Whether `atomic`, of which it is not known where it is, may take a lock of the kind of `wanted`.
pub(super) fn may_take(wanted: &Wanted, atomic: &Atomic) -> bool {
    let size = match (wanted.family, wanted.kind) {
        (Family::RustStd, _) => 4,
        (Family::ParkingLot, SyncKind::Mutex) => 1,
        (Family::ParkingLot, _) => 8,
        // Called by name, where that is not linked in.
        _ => return false,
    };
    let somewhere = Atomic { addr: Some(wanted.address.0), ..*atomic };
    atomic.addr.is_none()
        && atomic.size == size
        && matches!(atomic.change, Change::Exchange(..))
        && of_atomic(wanted, &somewhere) != Some(Effect::Release)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;

    #[test]
    fn functions_by_name() {
        for name in ["pthread_rwlock_rdlock", "__pthread_mutex_lock", "sem_timedwait", "pthread_rwlock_timedwrlock"] {
            assert_eq!(named(name), Named::Lock(Effect::Take), "{name}");
        }
        for name in ["pthread_mutex_trylock", "pthread_rwlock_tryrdlock", "pthread_rwlock_clockrdlock", "mtx_timedlock"]
        {
            assert_eq!(named(name), Named::Lock(Effect::Take), "{name}");
        }
        for name in ["pthread_rwlock_unlock", "sem_post", "mtx_unlock", "__cxa_guard_release", "__cxa_guard_abort"] {
            assert_eq!(named(name), Named::Lock(Effect::Release), "{name}");
        }
        for name in ["pthread_mutex_init", "pthread_rwlock_destroy", "sem_init", "sem_getvalue", "read"] {
            assert_eq!(named(name), Named::Plain, "{name}");
        }
        assert_eq!(named("abort"), Named::Never);
        assert_eq!(named("_ZSt20__throw_system_errori"), Named::Never);
    }

    #[test]
    fn changes_of_words() {
        let lock = |family, kind| Wanted { address: RemoteAddr(0x1000), size: 4, kind, family };
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
        assert!(may_take(&mutex, &Atomic { addr: None, size: 4, change: Change::Exchange(Some(0), Some(1)) }));
    }
}
