//! C++'s run-time library: variables of functions that are initialised once, and exceptions.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, WaitWords, u32_at};
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

/// What functions wait for: how their names begin, what is in them, and the words. Where a function is inlined, the template
/// that was made for its condition has its name. The first that applies.
const WAITS: [(&str, &str, WaitWords); 14] = [
    ("std::", "std::latch::", WaitWords::Named("at a std::latch")),
    ("std::", "std::__tree_barrier<", WaitWords::Named("at a std::barrier")),
    ("std::", "std::barrier<", WaitWords::Named("at a std::barrier")),
    ("std::__atomic_futex_unsigned", "", WaitWords::Named(RESULT)),
    ("std::future<", "", WaitWords::Named(RESULT)),
    ("std::shared_future<", "", WaitWords::Named(RESULT)),
    ("std::__basic_future<", "", WaitWords::Named(RESULT)),
    ("std::__future_base::_State_baseV2::wait", "", WaitWords::Named(RESULT)),
    ("std::", "std::__atomic_base<", WaitWords::Named("until an atomic variable changes")),
    ("std::atomic<", "wait", WaitWords::Named("until an atomic variable changes")),
    ("std::atomic_flag::", "wait", WaitWords::Named("until an atomic variable changes")),
    ("std::__atomic_flag_base", "wait", WaitWords::Named("until an atomic variable changes")),
    ("std::__atomic_wait_address", "", WaitWords::Part),
    ("std::__detail::__", "wait", WaitWords::Part),
];
const RESULT: &str = "for the result of a std::future";

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

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        // A signature has the names of other types in it.
        let of_semaphore = name.contains(SEMAPHORE);
        let is = |(beginning, part, _): &&(&str, &str, _)| name.starts_with(beginning) && name.contains(part);
        WAITS.iter().find(is).map(|(.., words)| *words).filter(|_| !of_semaphore)
    }

    fn awaits_work(&self, name: &str) -> bool {
        let conditions = ["std::condition_variable::wait", "std::_V2::condition_variable_any::wait"];
        conditions.iter().any(|beginning| name.starts_with(beginning)) || name.contains(SEMAPHORE)
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
