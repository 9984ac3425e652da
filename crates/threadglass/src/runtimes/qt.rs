//! Qt: a mutex and a semaphore of one word each. Its rwlocks and wait conditions wait for those of POSIX inside.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, u64_at};
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

    fn bytes_of(&self, _: SyncKind, _: Family) -> usize {
        8
    }

    /// A mutex is 0, 1 if it is locked, and 3 if threads may wait for it. One that is recursive has a pointer.
    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u64_at(bytes, 0).unwrap_or(0);
        if class.kind == SyncKind::Semaphore {
            let count = (word & COUNT) as u32;
            let state = if count == 0 { SyncState::Exhausted } else { SyncState::Available };
            return Content::plain(bytes, Some(8), state, Detail::Semaphore { count });
        }
        let state = match word {
            0 => SyncState::Unlocked,
            1 | 3 => SyncState::Locked,
            _ => SyncState::Unknown,
        };
        let plain = Content::plain(bytes, Some(8), state, Detail::Futex { value: word as u32 });
        Content { has_waiters: word == 3, ..plain }
    }

    fn function(&self, name: &str) -> Option<Function> {
        match name {
            "_ZN11QBasicMutex12lockInternalEv" | "_ZN6QMutex4lockEv" | "_ZN6QMutex7tryLockEi" => {
                Some(Function::Lock(Effect::Take))
            }
            "_ZN10QSemaphore7acquireEi" | "_ZN10QSemaphore10tryAcquireEii" => Some(Function::Lock(Effect::Take)),
            "_ZN11QBasicMutex14unlockInternalEv" | "_ZN6QMutex6unlockEv" | "_ZN10QSemaphore7releaseEi" => {
                Some(Function::Lock(Effect::Release))
            }
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
