//! Recursive mutexes of Qt. They record the thread that has them, and are built on the mutex of one word.

use super::release::{Release, is_inside};
use crate::RemoteAddr;
use crate::memory::{Memory, u64_at};
use crate::model::{Detail, Family, SyncKind, SyncState};
use crate::runtimes::{Class, Content, Context, Owner, SeenWait};

/// In Qt 5 the lock leads to whether it is recursive, its owner, a count, and the mutex.
const OWNER: usize = 8;
const MUTEX: u64 = 24;
const SIZE: usize = 32;
/// In Qt 6 it begins with its owner, and the mutex is here.
const MUTEX_IN_SIX: u64 = 16;
/// How the functions begin that take it.
const FUNCTIONS: &str = "QRecursiveMutex::";

/// The recursive mutex, if `class`, a mutex that a thread waits for, is a part of one.
pub(super) fn around(class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
    let outside = (seen.outside)();
    let address = match context.qt()? {
        Release::Five => {
            let parts = class.address.checked_sub(MUTEX)?;
            owner(context.target, parts)?;
            let leads_there = |at: &RemoteAddr| context.target.read_u64(*at) == Ok(parts.0);
            // The lock that the functions were called for; else one that the stack leads to.
            let given = (1..=MAX_CALLS).filter_map(|number| (seen.argument_in)(number)).find(leads_there);
            let places = || outside.words.iter().map(|word| RemoteAddr(*word));
            given.or_else(|| places().filter(|at| at.0 % 8 == 0 && at.0 > 0xffff).take(MAX_WORDS).find(leads_there))?
        }
        Release::Six | Release::SixSeven => {
            let inside = outside.frames.iter().take_while(|frame| is_inside(context.target, **frame)).count();
            let mut names = outside.functions.iter().take(inside).flatten().flatten();
            names.any(|name| name.starts_with(FUNCTIONS)).then_some(())?;
            class.address.checked_sub(MUTEX_IN_SIX)?
        }
    };
    Some(Class::new(SyncKind::Mutex, Family::Qt, address, class.evidence))
}

/// Calls of functions of the library, one from the other, of which the argument is looked for.
const MAX_CALLS: usize = 3;
/// Words of a stack that are tried.
const MAX_WORDS: usize = 192;

/// Who owns the recursive mutex of Qt 5 that has its parts there.
fn owner(memory: &dyn Memory, parts: RemoteAddr) -> Option<RemoteAddr> {
    let bytes = memory.read_vec(parts, SIZE).ok()?;
    let is_mutex = matches!(u64_at(&bytes, MUTEX as usize), Some(0 | 1 | 3));
    // The word before has a flag of one byte.
    (bytes[0] == 1 && is_mutex).then(|| u64_at(&bytes, OWNER).map(RemoteAddr)).flatten()
}

/// What a mutex whose word is none of one that records no owner says.
pub(super) fn decode(word: u64, bytes: &[u8], context: &Context<'_>) -> Content {
    let is_thread = |id: &RemoteAddr| context.is_descriptor(*id);
    let own = Some(RemoteAddr(word)).filter(is_thread);
    let owner = own.or_else(|| owner(context.target, RemoteAddr(word)));
    let state = match owner {
        None => SyncState::Unknown,
        Some(RemoteAddr(0)) => SyncState::Unlocked,
        Some(_) => SyncState::Locked,
    };
    let plain = Content::plain(bytes, Some(8), state, Detail::Futex { value: word as u32 });
    let owner = owner.filter(is_thread).map_or(Owner::None, Owner::Thread);
    Content { owner, shared: Some(false), ..plain }
}
