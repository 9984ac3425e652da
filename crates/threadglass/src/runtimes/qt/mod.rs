//! Qt: a mutex, a semaphore, a rwlock and a wait condition of one word each. Recursive mutexes record their owner.

mod conds;
mod recursive;
mod release;

pub(super) use release::Release;

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, WaitWords, u64_at};
use crate::RemoteAddr;
use crate::model::{Detail, Family, SyncKind, SyncState};

/// Of the word of a semaphore: the lower half counts, but for its highest bit.
const COUNT: u64 = 0x7fff_ffff;

pub(crate) struct Qt;

impl Runtime for Qt {
    fn families(&self) -> &'static [Family] {
        &[Family::Qt]
    }

    fn awaits_work(&self, name: &str) -> bool {
        name.starts_with("QWaitCondition::wait") || name.starts_with("QSemaphore::acquire")
    }

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        Some(match name.split('(').next()? {
            "QWaitCondition::wait" => WaitWords::Part,
            "QThread::wait" => WaitWords::Named("for the end of a QThread"),
            "QThreadPool::waitForDone" => WaitWords::Named("for the tasks of a QThreadPool"),
            "QFutureInterfaceBase::waitForFinished" | "QFutureInterfaceBase::waitForResult" => {
                WaitWords::Named("for the result of a QFuture")
            }
            _ => return None,
        })
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, _: &Context<'_>) -> Option<Class> {
        let Spot::Outer { function, evidence, .. } = spot else { return None };
        let kind = match function.split('(').next()? {
            "QBasicMutex::lockInternal" | "QMutex::lock" | "QMutex::tryLock" => SyncKind::Mutex,
            "QSemaphore::acquire" | "QSemaphore::tryAcquire" => SyncKind::Semaphore,
            _ => return None,
        };
        // Whoever wants more than one of a semaphore waits on the upper half of its word.
        Some(Class::new(kind, Family::Qt, RemoteAddr(seen.futex.word.0 & !7), evidence))
    }

    fn known_better(&self, class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        match (class.kind, class.family) {
            (SyncKind::Cond, Family::Pthread) => conds::of_cond(class, seen, context),
            (SyncKind::Mutex, Family::Qt) => recursive::around(class, seen, context),
            _ => None,
        }
    }

    fn bytes_of(&self, _: SyncKind, _: Family) -> usize {
        8
    }

    fn names_descriptor(&self, kind: SyncKind, _: Family) -> bool {
        kind == SyncKind::Mutex
    }

    /// A mutex is 0, 1 if it is locked, and 3 if threads may wait for it. One that is recursive has a pointer.
    fn decode(&self, class: &Class, bytes: &[u8], context: &Context<'_>) -> Content {
        let word = u64_at(bytes, 0).unwrap_or(0);
        match class.kind {
            SyncKind::Semaphore => {
                let count = (word & COUNT) as u32;
                let state = if count == 0 { SyncState::Exhausted } else { SyncState::Available };
                return Content::plain(bytes, Some(8), state, Detail::Semaphore { count });
            }
            SyncKind::Rwlock => return conds::rwlock(bytes, context),
            SyncKind::Cond => return Content::plain(bytes, Some(8), SyncState::Waiting, Detail::None {}),
            _ => {}
        }
        let state = match word {
            0 => SyncState::Unlocked,
            1 | 3 => SyncState::Locked,
            _ => return recursive::decode(word, bytes, context),
        };
        let plain = Content::plain(bytes, Some(8), state, Detail::Futex { value: word as u32 });
        Content { has_waiters: word == 3, ..plain }
    }

    /// By mangled names: how a method ends depends on the release.
    fn function(&self, name: &str) -> Option<Function> {
        let of = |class: &str, methods: &[&str]| {
            let method = name.strip_prefix("_ZN").and_then(|name| name.strip_prefix(class));
            method.is_some_and(|method| methods.iter().any(|begin| method.starts_with(begin)))
        };
        let rwlock = |methods: &[&str]| of("14QReadWriteLock", methods) || of("19QBasicReadWriteLock", methods);
        let takes = of("11QBasicMutex", &["12lockInternal"])
            || of("6QMutex", &["4lock", "7tryLock"])
            || of("15QRecursiveMutex", &["4lock", "7tryLock"])
            || of("10QSemaphore", &["7acquire", "10tryAcquire"])
            || rwlock(&["11lockFor", "12lockFor", "14tryLockFor", "15tryLockFor"])
            || rwlock(&["23contendedTryLockFor", "24contendedTryLockFor"]);
        let releases = of("11QBasicMutex", &["14unlockInternal"])
            || of("6QMutex", &["6unlock"])
            || of("15QRecursiveMutex", &["6unlock"])
            || of("10QSemaphore", &["7release"])
            || rwlock(&["6unlock", "15contendedUnlock"]);
        match (takes, releases, of("14QWaitCondition", &["4wait"])) {
            (true, ..) => Some(Function::Lock(Effect::Take)),
            (_, true, _) => Some(Function::Lock(Effect::Release)),
            (.., true) => Some(Function::Waits),
            _ => None,
        }
    }

    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        match kind {
            SyncKind::Semaphore => LockWord { is_called: true, ..LockWord::default() },
            // Programs take and release a mutex in line where nobody else wants it.
            _ => LockWord { sizes: &[8], ..LockWord::default() },
        }
    }
}
