//! libgomp, which OpenMP programs of gcc use: locks of one word, and barriers of teams of threads.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, u32_at};
use crate::RemoteAddr;
use crate::model::{Detail, Evidence, Family, SyncKind, SyncObject, SyncState};
use crate::target::Target;

/// A lock that is taken and waited for.
const CONTENDED: u32 = u32::MAX;
/// Of a barrier: how many threads it is for, what they wait on, and how many have not come. The last is in a cache line
/// of its own.
const GENERATION: u64 = 4;
const AWAITED: usize = 64;
const BARRIER: usize = AWAITED + 4;
/// No program has more threads in a team.
const MOST_THREADS: u32 = 1 << 22;

/// How its file is called.
const LIBRARY: &str = "libgomp.so";

pub(crate) struct Gomp;

impl Runtime for Gomp {
    fn families(&self) -> &'static [Family] {
        &[Family::Gomp]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let Spot::Outer { function, evidence, .. } = spot else { return None };
        let word = seen.futex.word;
        match function {
            "omp_set_lock" | "omp_set_nest_lock" | "GOMP_critical_start" | "GOMP_critical_name_start" => {
                Some(Class::new(SyncKind::Mutex, Family::Gomp, word, evidence))
            }
            // A function that ends in taking a lock jumps there, and leaves only its caller to be seen.
            _ if function.starts_with("GOMP_") && seen.futex.value == CONTENDED => {
                Some(Class::new(SyncKind::Mutex, Family::Gomp, word, Evidence::Inferred))
            }
            // Threads also meet at the end of what they do together.
            _ if function.starts_with("GOMP_") => {
                let address = word.checked_sub(GENERATION).filter(|address| barrier_at(*address, context).is_some())?;
                Some(Class::new(SyncKind::Barrier, Family::Gomp, address, evidence))
            }
            _ => None,
        }
    }

    fn bytes_of(&self, kind: SyncKind, _: Family) -> usize {
        if kind == SyncKind::Barrier { BARRIER } else { 4 }
    }

    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u32_at(bytes, 0).unwrap_or(0);
        if class.kind == SyncKind::Barrier {
            let barrier = barrier(bytes);
            let (needed, arrived) = barrier.unwrap_or((word, 0));
            let state = if arrived > 0 { SyncState::Waiting } else { SyncState::Idle };
            let plain = Content::plain(bytes, Some(BARRIER as u64), state, Detail::Barrier { needed, arrived });
            return Content { is_plausible: barrier.is_some(), has_waiters: arrived > 0, ..plain };
        }
        let state = match word {
            0 => SyncState::Unlocked,
            1 | CONTENDED => SyncState::Locked,
            _ => SyncState::Unknown,
        };
        let plain = Content::plain(bytes, Some(4), state, Detail::Futex { value: word });
        Content { has_waiters: word == CONTENDED, ..plain }
    }

    fn function(&self, name: &str) -> Option<Function> {
        match name {
            "omp_set_lock" | "omp_test_lock" | "omp_set_nest_lock" | "omp_test_nest_lock" => {
                Some(Function::Lock(Effect::Take))
            }
            "omp_unset_lock" | "omp_unset_nest_lock" => Some(Function::Lock(Effect::Release)),
            // A critical section with a name has a word of the program for it; all others share one of the library.
            "GOMP_critical_name_start" => Some(Function::Lock(Effect::Take)),
            "GOMP_critical_name_end" => Some(Function::Lock(Effect::Release)),
            "GOMP_critical_start" => Some(Function::OnlyLock(Effect::Take, LIBRARY)),
            "GOMP_critical_end" => Some(Function::OnlyLock(Effect::Release, LIBRARY)),
            _ => None,
        }
    }

    fn own_name(&self, object: &SyncObject, _: Option<&str>, target: &dyn Target) -> Option<String> {
        let is_inside = || target.module_at(object.address).is_some_and(|it| it.name().starts_with(LIBRARY));
        let is_only = object.kind == SyncKind::Mutex && is_inside();
        is_only.then(|| "the lock of all critical sections without a name".to_owned())
    }

    fn lock_word(&self, _: SyncKind, _: Family) -> LockWord {
        LockWord { sizes: &[4], is_called: true, ..LockWord::default() }
    }
}

fn barrier_at(address: RemoteAddr, context: &Context<'_>) -> Option<(u32, u32)> {
    barrier(&context.target.read_vec(address, BARRIER).ok()?)
}

/// The threads that a barrier is for, and how many of them have come.
fn barrier(bytes: &[u8]) -> Option<(u32, u32)> {
    let (needed, awaited) = (u32_at(bytes, 0)?, u32_at(bytes, AWAITED)?);
    (needed <= MOST_THREADS).then_some((needed, needed.checked_sub(awaited)?))
}
