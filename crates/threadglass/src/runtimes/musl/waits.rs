//! From a wait to the object that is waited for: by the function of musl that waits, or by numbers and contents.

use super::locks::{MAX_TID, Mutex, once, rwlock, semaphore, size_of};
use super::own_stack::{CondNode, barrier, candidates};
use crate::model::{Evidence, Family, Side, SyncKind};
use crate::runtimes::{Class, Content, Context, FutexOp, SeenWait, u32_at};
use crate::{InnerTid, RemoteAddr};

/// Where a mutex has the word that its waiters wait on.
const LOCK: u64 = 4;
/// Where a condition variable that processes share, and such a barrier, have theirs.
const SEQUENCE: u64 = 8;
const COUNT: u64 = 12;
/// How far above its stack pointer a thread that waits may have the word that is its own.
const OWN: u64 = 64 << 10;

/// Set in the word of a lock that is waited for.
const WAITERS: u32 = 1 << 31;
/// The word of a stream that is waited for: this, and the id of its owner.
const STREAM_WAITERS: u32 = 1 << 30;
/// The word of a mutex of the usual type that is waited for.
const MUTEX_WAITED: u32 = WAITERS | 16;
/// The word of a mutex that is waited for, whose owner ended without a release.
const OWNER_ENDED: u32 = WAITERS | 1 << 30;

/// A function that waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Mutex,
    Cond,
    Rwlock(Side),
    Semaphore,
    Barrier,
    Once,
    Join,
    /// A lock that musl keeps for itself.
    Inside,
    /// The system call itself: what it is for is known by who made it.
    Raw,
}

impl Waiting {
    /// By the name of a function of musl.
    pub(super) fn in_musl(function: &str) -> Option<Self> {
        let name = function.trim_start_matches('_').split(['@', '.']).next()?;
        // With a deadline, by any clock: what is waited for is the same.
        let name = name.replace("timed", "").replace("clock", "");
        Some(match name.as_str() {
            "pthread_mutex_lock" | "pthread_mutex_lock_pi" | "mtx_lock" => Self::Mutex,
            "pthread_cond_wait" | "cnd_wait" => Self::Cond,
            "pthread_rwlock_rdlock" => Self::Rwlock(Side::Read),
            "pthread_rwlock_wrlock" => Self::Rwlock(Side::Write),
            "sem_wait" => Self::Semaphore,
            "pthread_barrier_wait" | "pshared_barrier_wait" => Self::Barrier,
            "pthread_once" | "pthread_once_full" | "call_once" => Self::Once,
            "pthread_join" | "pthread_join_np" | "thrd_join" => Self::Join,
            // Programs have functions of these names, without what is before them in musl.
            "lock" | "lockfile" | "tl_lock" if function.starts_with("__") => Self::Inside,
            "syscall" => Self::Raw,
            _ => return None,
        })
    }
}

/// What a wait is for that `waiting` made; `None` when the numbers do not fit such a wait.
pub(super) fn by_function(
    waiting: Waiting,
    seen: &SeenWait<'_>,
    evidence: Evidence,
    context: &Context<'_>,
) -> Option<Class> {
    let word = seen.futex.word;
    let class = |kind, address| Some(Class::new(kind, Family::Musl, address, evidence));
    match waiting {
        Waiting::Mutex => mutex(seen, evidence, context),
        Waiting::Cond => cond(seen, evidence, context),
        Waiting::Rwlock(side) => {
            let class = class(SyncKind::Rwlock, word)?;
            fits(&class, seen, context, rwlock).then_some(Class { side: Some(side), ..class })
        }
        Waiting::Semaphore => class(SyncKind::Semaphore, word).filter(|class| fits(class, seen, context, semaphore)),
        Waiting::Once => class(SyncKind::Once, word).filter(|class| fits(class, seen, context, once)),
        Waiting::Barrier => class(SyncKind::Barrier, barrier_of(seen, context)?),
        Waiting::Join => class(SyncKind::Join, word),
        Waiting::Inside => Some(inside(word, evidence)),
        Waiting::Raw => None,
    }
}

/// What a wait is for, where no function tells. Only what leads back to the word, or what nothing else has, is more than
/// inferred.
pub(super) fn by_numbers(seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
    let futex = &seen.futex;
    let class = |kind, address, evidence| Class::new(kind, Family::Musl, address, evidence);
    if futex.op == FutexOp::LockPi {
        return mutex(seen, Evidence::Derived, context);
    }
    // musl has no other way to wait.
    if futex.op != FutexOp::Wait || futex.realtime {
        return None;
    }
    if joined(futex.word, context).is_some() {
        return Some(class(SyncKind::Join, futex.word, Evidence::Derived));
    }
    // The first thread at a barrier waits on its own stack, and all others on that of the first.
    let is_own = futex.word.0.wrapping_sub(seen.sp.0) < OWN;
    if is_own || futex.value == 0 {
        let barrier = || Some(class(SyncKind::Barrier, barrier_of(seen, context)?, Evidence::Derived));
        let found = cond(seen, Evidence::Derived, context).filter(|_| is_own).or_else(barrier);
        // What is allocated may lie just above a stack, so a word that is near need not be on it.
        if found.is_some() || futex.value == 0 {
            return found;
        }
    }
    let stream = futex.value ^ STREAM_WAITERS;
    if (1..=MAX_TID).contains(&stream) && context.has_thread(InnerTid(stream as i32)) {
        return Some(inside(futex.word, Evidence::Inferred));
    }
    let mutex = mutex(seen, Evidence::Inferred, context).filter(|_| futex.value & WAITERS != 0);
    // A rwlock with as many readers would look the same; but a list that leads to the mutex leaves no doubt, and a number
    // of readers that is just that of a locked mutex is rare.
    let is_word_of_mutex = matches!(futex.value, MUTEX_WAITED | OWNER_ENDED);
    if let Some(mutex) = mutex.filter(|mutex| mutex.evidence <= Evidence::Derived || is_word_of_mutex) {
        return Some(mutex);
    }
    let rwlock = Some(class(SyncKind::Rwlock, futex.word, Evidence::Inferred)).filter(|class| {
        let fits =
            fits(class, seen, context, |bytes| rwlock(bytes).filter(|it| it.state.is_held() && is_counted(bytes)));
        fits && futex.value & WAITERS != 0 && futex.value != WAITERS
    });
    // Readers wait only for a writer, so whoever waits for readers wants to write.
    let side = (futex.value != u32::MAX).then_some(Side::Write);
    let rwlock = rwlock.map(|class| Class { side, ..class });
    let semaphore = Some(class(SyncKind::Semaphore, futex.word, Evidence::Inferred)).filter(|class| {
        let is_waited = matches!(futex.value, WAITERS | u32::MAX);
        is_waited && fits(class, seen, context, |bytes| semaphore(bytes).filter(|_| is_counted(bytes)))
    });
    let once = Some(class(SyncKind::Once, futex.word, Evidence::Inferred));
    let once = once.filter(|class| futex.private && futex.value == 3 && fits(class, seen, context, once_in_progress));
    let mut all = [rwlock, semaphore, once].into_iter().flatten();
    let one = all.next()?;
    all.next().is_none().then_some(one)
}

/// A lock that musl keeps for itself.
fn inside(word: RemoteAddr, evidence: Evidence) -> Class {
    Class::new(SyncKind::Mutex, Family::MuslInside, word, evidence)
}

/// Whether the lock that is an `int` with a count of its waiters behind it has any.
fn is_counted(bytes: &[u8]) -> bool {
    u32_at(bytes, 4).is_some_and(|waiters| waiters != 0)
}

fn once_in_progress(bytes: &[u8]) -> Option<Content> {
    once(bytes).filter(|content| content.has_waiters)
}

/// Whether what is there can be such an object, and one that this thread can wait for: private or shared as its wait is.
fn fits(class: &Class, seen: &SeenWait<'_>, context: &Context<'_>, decode: impl Fn(&[u8]) -> Option<Content>) -> bool {
    let bytes = context.target.read_vec(class.address, size_of(class.kind));
    bytes
        .ok()
        .and_then(|bytes| decode(&bytes))
        .is_some_and(|content| content.is_plausible && content.shared.is_none_or(|shared| shared != seen.futex.private))
}

/// The mutex that is waited for.
fn mutex(seen: &SeenWait<'_>, evidence: Evidence, context: &Context<'_>) -> Option<Class> {
    let futex = &seen.futex;
    let class = |address, evidence| Class::new(SyncKind::Mutex, Family::Musl, address, evidence);
    // The kernel found that it can never be had: musl sleeps for ever, on a word that nobody knows.
    if futex.op == FutexOp::Wait && futex.value == 0 {
        let inherits = |mutex: Mutex| mutex.is_plausible() && mutex.inherits();
        let argument = (seen.first_argument)()?;
        return Mutex::read(context.target, argument).is_some_and(inherits).then(|| class(argument, evidence));
    }
    let address = futex.word.checked_sub(LOCK)?;
    let mutex = Mutex::read(context.target, address).filter(Mutex::is_plausible)?;
    let waits_so = match (futex.op, mutex.records_owner()) {
        (FutexOp::LockPi, _) => mutex.inherits(),
        (_, true) => futex.value & WAITERS != 0 && !mutex.inherits(),
        (_, false) => futex.value == MUTEX_WAITED,
    };
    // One that its owner has in its list is nothing else.
    let is_listed = mutex.records_owner() && mutex.is_listed(context.target, address);
    let evidence = if is_listed { evidence.min(Evidence::Derived) } else { evidence };
    waits_so.then(|| class(address, evidence))
}

/// The condition variable that is waited for; for whoever was signalled the mutex.
fn cond(seen: &SeenWait<'_>, evidence: Evidence, context: &Context<'_>) -> Option<Class> {
    let (futex, memory) = (&seen.futex, context.target);
    let class = |kind, address| Class::new(kind, Family::Musl, address, evidence);
    // One that waits for the mutex again.
    if let Some(mutex) = mutex(seen, evidence, context).filter(|_| futex.value & WAITERS != 0) {
        return Some(mutex);
    }
    if !futex.private {
        let cond = futex.word.checked_sub(SEQUENCE)?;
        let is_shared = memory.read_u64(cond).is_ok_and(|shared| shared != 0);
        return is_shared.then(|| class(SyncKind::Cond, cond));
    }
    let node = CondNode::around(futex.word).filter(|_| futex.value == 2)?;
    if let Some(cond) = node.cond(memory, candidates(memory, seen.words)) {
        return Some(class(SyncKind::Cond, cond));
    }
    if node.is_signalled(memory) {
        let argument = (seen.second_argument)()?;
        let is_held = |mutex: Mutex| mutex.is_plausible() && mutex.state().is_held();
        return Mutex::read(memory, argument).is_some_and(is_held).then(|| class(SyncKind::Mutex, argument));
    }
    let argument = (seen.first_argument)().map(|argument| argument.0);
    node.cond(memory, argument.into_iter()).map(|cond| class(SyncKind::Cond, cond))
}

fn barrier_of(seen: &SeenWait<'_>, context: &Context<'_>) -> Option<RemoteAddr> {
    let (futex, memory) = (&seen.futex, context.target);
    if !futex.private {
        let address = futex.word.checked_sub(COUNT)?;
        let is_shared = memory.read_u32(address.offset(8)).is_ok_and(|limit| limit & WAITERS != 0);
        return is_shared.then_some(address);
    }
    let argument = || (seen.first_argument)().map(|argument| argument.0);
    let on_stack = barrier(memory, futex.word, futex.value, candidates(memory, seen.words));
    on_stack.or_else(|| barrier(memory, futex.word, futex.value, argument().into_iter()))
}

/// The thread whose end is told by `word`.
pub(super) fn joined(word: RemoteAddr, context: &Context<'_>) -> Option<RemoteAddr> {
    let id = word.checked_sub(context.musl()?.detach_state())?;
    context.is_descriptor(id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions() {
        assert_eq!(Waiting::in_musl("__pthread_mutex_timedlock"), Some(Waiting::Mutex));
        assert_eq!(Waiting::in_musl("pthread_rwlock_timedwrlock"), Some(Waiting::Rwlock(Side::Write)));
        assert_eq!(Waiting::in_musl("__pthread_timedjoin_np"), Some(Waiting::Join));
        assert_eq!(Waiting::in_musl("printf"), None);
        assert_eq!([Waiting::in_musl("__lock"), Waiting::in_musl("lock")], [Some(Waiting::Inside), None]);
    }
}
