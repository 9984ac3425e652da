//! C++'s run-time library: variables of functions that are initialised once, and exceptions.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, u32_at};
use crate::model::{Detail, Evidence, Family, SyncKind, SyncState};

/// Of the guard of a C++ variable: its first byte says that it is initialised, a bit of its second that somebody is
/// at it.
const GUARD_DONE: u32 = 1;
const GUARD_PENDING: u32 = 1 << 8;

const NEVER: [&str; 5] =
    ["_Unwind_Resume", "_Unwind_RaiseException", "__cxa_throw", "__cxa_rethrow", "__cxa_begin_catch"];

/// In the name of each function of a semaphore that waits: also of a template for its condition, where the function is
/// inlined.
const SEMAPHORE: &str = "std::__atomic_semaphore::_M_";

pub(crate) struct Cxx;

impl Runtime for Cxx {
    fn families(&self) -> &'static [Family] {
        &[Family::Cxx]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, _: &Context<'_>) -> Option<Class> {
        if let Spot::Caller(name) | Spot::Outer { function: name, .. } = spot
            && (name.starts_with("std::counting_semaphore<") || name.contains(SEMAPHORE))
        {
            return Some(Class::new(SyncKind::Semaphore, Family::Cxx, seen.futex.word, Evidence::Derived));
        }
        // A static variable of a function that another thread initialises.
        let guard = Class::new(SyncKind::Once, Family::Cxx, seen.futex.word, Evidence::Derived);
        matches!(spot, Spot::Caller("__cxa_guard_acquire")).then_some(guard)
    }

    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u32_at(bytes, 0).unwrap_or(0);
        if class.kind == SyncKind::Semaphore {
            let state = if word == 0 { SyncState::Exhausted } else { SyncState::Available };
            return Content::plain(bytes, Some(4), state, Detail::Semaphore { count: word });
        }
        let (size, state) = match (class.kind, word & GUARD_DONE != 0, word & GUARD_PENDING != 0) {
            (SyncKind::Once, true, _) => (8, SyncState::Done),
            (SyncKind::Once, false, true) => (8, SyncState::InProgress),
            (SyncKind::Once, false, false) => (8, SyncState::New),
            _ => (4, SyncState::Unknown),
        };
        Content::plain(bytes, Some(size), state, Detail::Futex { value: word })
    }

    fn function(&self, name: &str) -> Option<Function> {
        let throws = name.starts_with("_ZSt") && name.contains("__throw_") || name == "_ZSt9terminatev";
        match name.trim_start_matches('_') {
            _ if throws || NEVER.contains(&name) => Some(Function::Never),
            "cxa_guard_acquire" => Some(Function::Lock(Effect::Take)),
            "cxa_guard_release" | "cxa_guard_abort" => Some(Function::Lock(Effect::Release)),
            _ => None,
        }
    }

    fn lock_word(&self, kind: SyncKind, _: Family) -> LockWord {
        if kind == SyncKind::Semaphore {
            let held = |word: u64| u64::from(u32::MAX - word as u32);
            let added = |by: i64| i64::from(by as i32).wrapping_neg();
            return LockWord { sizes: &[4], held, added, ..LockWord::default() };
        }
        LockWord { is_called: true, ..LockWord::default() }
    }
}
