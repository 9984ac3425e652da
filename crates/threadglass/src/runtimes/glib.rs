//! GLib: a mutex and a condition variable of one word each. Its rwlocks and recursive mutexes are those of POSIX.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, WaitWords, u32_at};
use crate::model::{Detail, Family, SyncKind, SyncState};

/// Where a condition variable has its word: behind a pointer, for systems without futexes.
const COND_WORD: u64 = 8;

pub(crate) struct Glib;

impl Runtime for Glib {
    fn families(&self) -> &'static [Family] {
        &[Family::Glib]
    }

    fn awaits_work(&self, name: &str) -> bool {
        name.starts_with("g_cond_wait") || name.starts_with("g_async_queue_") && name.contains("pop")
    }

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        Some(match name {
            "g_cond_wait" | "g_cond_wait_until" => WaitWords::Part,
            _ if name.starts_with("g_async_queue_") && name.contains("pop") => {
                WaitWords::Named("for what a GAsyncQueue gets")
            }
            "g_thread_pool_free" => WaitWords::Named("for the tasks of a GThreadPool"),
            "g_once_init_enter" | "g_once_impl" => WaitWords::Named("for what another thread initialises once (GLib)"),
            _ => return None,
        })
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, _: &Context<'_>) -> Option<Class> {
        let Spot::Outer { function, depth, evidence } = spot else { return None };
        let kind = match function {
            "g_mutex_lock" => SyncKind::Mutex,
            "g_cond_wait" | "g_cond_wait_until" if depth == 0 => SyncKind::Cond,
            // Awake again, it takes its mutex back by a function of its own.
            "g_cond_wait" | "g_cond_wait_until" => SyncKind::Mutex,
            _ => return None,
        };
        let word = seen.futex.word;
        let address = if kind == SyncKind::Cond { word.checked_sub(COND_WORD)? } else { word };
        Some(Class::new(kind, Family::Glib, address, evidence))
    }

    fn bytes_of(&self, kind: SyncKind, _: Family) -> usize {
        if kind == SyncKind::Cond { 16 } else { 8 }
    }

    /// A mutex is 0, 1 if it is locked, and 2 if threads may wait for it; a condition variable counts signals.
    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let at = if class.kind == SyncKind::Cond { COND_WORD as usize } else { 0 };
        let word = u32_at(bytes, at).unwrap_or(0);
        let state = match (class.kind, word) {
            (SyncKind::Cond, _) => SyncState::Waiting,
            (SyncKind::Mutex, 0) => SyncState::Unlocked,
            (SyncKind::Mutex, 1 | 2) => SyncState::Locked,
            _ => SyncState::Unknown,
        };
        let size = if class.kind == SyncKind::Cond { 16 } else { 8 };
        let plain = Content::plain(bytes, Some(size), state, Detail::Futex { value: word });
        Content { has_waiters: class.kind == SyncKind::Mutex && word == 2, ..plain }
    }

    fn function(&self, name: &str) -> Option<Function> {
        match name {
            "g_mutex_lock" | "g_mutex_trylock" => Some(Function::Lock(Effect::Take)),
            "g_mutex_unlock" => Some(Function::Lock(Effect::Release)),
            _ => None,
        }
    }

    fn lock_word(&self, _: SyncKind, _: Family) -> LockWord {
        LockWord { sizes: &[4], is_called: true, ..LockWord::default() }
    }
}
