//! glibc's locks, behind the contract of [`crate::runtimes`].

use super::guess::{Guesser, held_mutex, held_rwlock};
use super::inside;
use super::locks::{CondLayout, Mutex, decode, size_of};
use super::waits::{Waiting, classify};
use super::{recipes, robust};
use crate::model::{Detail, Evidence, Family, MutexProtocol, SyncKind, SyncObject, SyncState};
use crate::runtimes::{
    Class, Content, Context, Effect, Function, FutexOp, LockWord, Owner, Runtime, SeenWait, SetError, SetPlan, Spot,
    u32_at, u64_at,
};
use crate::target::{LwpFacts, Target};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

const NEVER: [&str; 13] = [
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
];

/// POSIX threads, and the locks that the C library keeps for itself.
pub(crate) struct Glibc;

impl Runtime for Glibc {
    fn families(&self) -> &'static [Family] {
        &[Family::Pthread, Family::Libc]
    }

    fn awaits_work(&self, name: &str) -> bool {
        let name = name.trim_start_matches('_');
        name.contains("wait") && ["pthread_cond_", "cnd_", "sem_"].iter().any(|beginning| name.starts_with(beginning))
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let (Spot::Entry(name, evidence) | Spot::Frame(name, evidence)) = spot else { return None };
        // Objects of another libc look different, and so do those of libraries that wait past it, by themselves.
        let waiting = Waiting::in_libc(name).filter(|_| context.glibc().is_some() && !seen.past_libc)?;
        if waiting == Waiting::Mutex && seen.futex.is_hopeless() && matches!(spot, Spot::Entry(..)) {
            return Some(hopeless_wait(seen, evidence, context));
        }
        let is_waited = |mutex: Mutex| mutex.is_plausible() && mutex.has_waiters();
        let is_mutex = |addr| Mutex::read(context.target, addr).is_some_and(is_waited);
        classify(waiting, &seen.futex, evidence, context.cond(), is_mutex)
    }

    fn by_numbers(&self, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let futex = &seen.futex;
        if joined(futex.word, context).is_some() && !futex.private && !futex.restarted {
            return Some(Class::new(SyncKind::Join, Family::Pthread, futex.word, Evidence::Derived));
        }
        // Called by way of syscall(2), none of libc's own objects is meant; and another libc has others.
        if context.glibc().is_none() || seen.past_libc || seen.call.is_some_and(|call| self.passes_on(&call.function)) {
            return None;
        }
        let may_be_own = futex.private && futex.op == FutexOp::Wait && futex.value == 2;
        let own = |evidence| Class::new(SyncKind::Mutex, Family::Libc, futex.word, evidence);
        if may_be_own && is_known_inside(futex.word, seen.call.is_none(), context) {
            return Some(own(Evidence::Derived));
        }
        let guessed = Guesser { context, cond: context.cond() }.guess(futex);
        // Some other function of libc waits: for a lock that libc keeps for itself. A mutex would have an owner.
        let is_owned =
            |class: &Class| Mutex::read(context.target, class.address).is_some_and(|it| it.owner().is_some());
        match guessed {
            Some(class) if !may_be_own || seen.call.is_none() || is_owned(&class) => Some(class),
            _ if seen.call.is_some() && may_be_own => Some(own(Evidence::Inferred)),
            _ => None,
        }
    }

    fn passes_on(&self, function: &str) -> bool {
        Waiting::in_libc(function) == Some(Waiting::Raw)
    }

    /// libc keeps the pointers to both side by side on the waiter's stack, for the case that it is cancelled.
    fn given_up(&self, class: &Class, words: &[u64], context: &Context<'_>) -> Option<RemoteAddr> {
        let cond = class.address;
        let pairs = words.windows(2).filter(|pair| class.kind == SyncKind::Cond && pair[0] == cond.0);
        pairs.map(|pair| RemoteAddr(pair[1])).find(|mutex| {
            // Waiters are counted as users of the mutex.
            let fits = |mutex: Mutex| mutex.is_plausible() && mutex.users != 0;
            *mutex != cond && Mutex::read(context.target, *mutex).is_some_and(fits)
        })
    }

    fn bytes_of(&self, kind: SyncKind, family: Family) -> usize {
        match family {
            Family::Pthread => size_of(kind).unwrap_or(4),
            _ => 16,
        }
    }

    fn decode(&self, class: &Class, bytes: &[u8], context: &Context<'_>) -> Content {
        let word = u32_at(bytes, 0).unwrap_or(0);
        match (class.family, class.kind) {
            (Family::Pthread, SyncKind::Join) => {
                let owner = joined(class.address, context).map_or(Owner::None, Owner::Thread);
                let state = if word == 0 { SyncState::Exited } else { SyncState::Running };
                Content { owner, ..Content::plain(bytes, None, state, Detail::None {}) }
            }
            (Family::Pthread, kind) => decode(kind, bytes, context.cond())
                .unwrap_or_else(|| Content::plain(bytes, None, SyncState::Unknown, Detail::None {})),
            _ => {
                let owner = if word == 0 { Owner::None } else { owner_beside(class.address, bytes, context) };
                let state = if word == 0 { SyncState::Unlocked } else { SyncState::Locked };
                let plain = Content::plain(bytes, Some(4), state, Detail::Futex { value: word });
                Content { owner, shared: Some(false), has_waiters: word == 2, ..plain }
            }
        }
    }

    fn names_descriptor(&self, kind: SyncKind, family: Family) -> bool {
        kind == SyncKind::Join || family == Family::Libc
    }

    fn registered(
        &self,
        context: &Context<'_>,
        facts: &BTreeMap<Lwp, LwpFacts>,
        ids: &HashMap<Lwp, Option<PthreadId>>,
    ) -> Vec<Class> {
        context.glibc().map_or_else(Vec::new, |layout| robust::lists(context.target, layout, facts, ids))
    }

    fn held_by_content(&self, bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        let mutex = held_mutex(bytes, is_thread).then_some(SyncKind::Mutex);
        mutex.or_else(|| held_rwlock(bytes, is_thread).then_some(SyncKind::Rwlock))
    }

    fn in_use(&self, kind: SyncKind, bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        // A semaphore and a barrier are of one size; so are many other things, which are left out unless they
        // show signs of use.
        let kind = match kind {
            SyncKind::Semaphore => SyncKind::Barrier,
            kind => kind,
        };
        let content = decode(kind, bytes, CondLayout::Unknown)?;
        let in_use = match kind {
            SyncKind::Mutex => content.owner_tid().is_some_and(is_thread) || content.state == SyncState::OwnerDied,
            SyncKind::Rwlock => content.owner_tid().is_some_and(is_thread),
            SyncKind::Barrier => content.has_waiters,
            _ => false,
        };
        (content.is_plausible && in_use).then_some(kind)
    }

    fn is_inside_libc(&self, family: Family) -> bool {
        family == Family::Libc
    }

    fn own_name(&self, object: &SyncObject, entry: Option<&str>, target: &dyn Target) -> Option<String> {
        match object.family {
            Family::Libc => inside::name_of(target, object.address, entry),
            _ => inside::name_in_loader(target, object.address),
        }
    }

    fn function(&self, name: &str) -> Option<Function> {
        if NEVER.contains(&name) {
            return Some(Function::Never);
        }
        let plain = name.trim_start_matches('_');
        let rest = ["pthread_mutex_", "pthread_rwlock_", "pthread_spin_", "mtx_"]
            .iter()
            .find_map(|prefix| plain.strip_prefix(prefix));
        let effect = match (rest, plain.strip_prefix("sem_")) {
            (Some("unlock"), _) | (_, Some("post")) => Some(Effect::Release),
            (Some(rest), _) => {
                let rest = rest.trim_start_matches("timed").trim_start_matches("try").trim_start_matches("clock");
                matches!(rest, "lock" | "rdlock" | "wrlock").then_some(Effect::Take)
            }
            (_, Some("wait" | "trywait" | "timedwait" | "clockwait")) => Some(Effect::Take),
            _ => None,
        };
        effect.map(Function::Lock)
    }

    fn tries(&self, name: &str) -> Option<SyncKind> {
        match name.trim_start_matches('_') {
            "pthread_mutex_trylock" | "mtx_trylock" => Some(SyncKind::Mutex),
            "pthread_rwlock_tryrdlock" | "pthread_rwlock_trywrlock" => Some(SyncKind::Rwlock),
            "pthread_spin_lock" | "pthread_spin_trylock" => Some(SyncKind::Spinlock),
            "sem_trywait" => Some(SyncKind::Semaphore),
            _ => None,
        }
    }

    fn executes_once(&self, name: &str) -> bool {
        Waiting::in_libc(name) == Some(Waiting::Plain(SyncKind::Once))
    }

    fn is_part(&self, function: &str) -> bool {
        const PREFIXES: [&str; 10] =
            ["pthread_", "lll_", "futex_", "sem_", "new_sem_", "old_sem_", "mtx_", "cnd_", "libc_lock", "syscall"];
        PREFIXES.iter().any(|prefix| function.trim_start_matches('_').starts_with(prefix))
    }

    fn lock_word(&self, kind: SyncKind, family: Family) -> LockWord {
        let word = LockWord { is_called: true, ..LockWord::default() };
        match (family, kind) {
            // libc takes and releases its own locks in line.
            (Family::Libc, _) => LockWord { sizes: &[4], ..LockWord::default() },
            // What can still be taken is in the lower half.
            (Family::Pthread, SyncKind::Semaphore) => LockWord {
                sizes: &[4, 8],
                held: |word| u64::from(u32::MAX - word as u32),
                added: |by| i64::from(by as i32).wrapping_neg(),
                ..word
            },
            // Readers, and the bit of a writer.
            (Family::Pthread, SyncKind::Rwlock) => LockWord {
                sizes: &[4],
                held: |word| ((word & u64::from(u32::MAX)) >> 3) + (word >> 1 & 1),
                added: |by| by >> 3,
                ..word
            },
            _ => word,
        }
    }

    fn type_alias(&self, name: &str) -> Option<SyncKind> {
        Some(match name {
            "pthread_mutex_t" | "mtx_t" => SyncKind::Mutex,
            "pthread_cond_t" | "cnd_t" => SyncKind::Cond,
            "pthread_rwlock_t" => SyncKind::Rwlock,
            "sem_t" => SyncKind::Semaphore,
            "pthread_barrier_t" => SyncKind::Barrier,
            "pthread_spinlock_t" => SyncKind::Spinlock,
            "pthread_once_t" | "once_flag" => SyncKind::Once,
            _ => return None,
        })
    }

    fn variable_sizes(&self) -> &'static [(u64, SyncKind)] {
        &[(40, SyncKind::Mutex), (48, SyncKind::Cond), (56, SyncKind::Rwlock), (32, SyncKind::Semaphore)]
    }

    fn alignment(&self, family: Family) -> u64 {
        if family == Family::Pthread { 8 } else { 4 }
    }

    fn set_state(&self, object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
        if object.family == Family::Libc {
            return Err(SetError::NotCapable(
                "a lock inside libc is not set: the data that it protects (a stream, the heap) would be damaged",
            ));
        }
        let recipe = match object.kind {
            SyncKind::Mutex => recipes::mutex::plan,
            SyncKind::Semaphore => recipes::semaphore::plan,
            SyncKind::Rwlock => recipes::rwlock::plan,
            kind => return Err(SetError::no_state(kind)),
        };
        let content = decode(object.kind, bytes, CondLayout::Unknown).filter(|content| content.is_plausible);
        match content.ok_or(SetError::Implausible(object.kind))?.state {
            SyncState::Destroyed => Err(SetError::Destroyed(object.kind)),
            _ => recipe(object, bytes, value),
        }
    }

    fn is_counted(&self) -> bool {
        true
    }
}

/// Whether `word` is the lock of a stream or of an arena.
fn is_known_inside(word: RemoteAddr, is_linked_in: bool, context: &Context<'_>) -> bool {
    inside::is_arena(context.target, word) || inside::stream_of(context.target, word, is_linked_in).is_some()
}

/// Who holds a lock of libc that has its owner beside it, as those of streams have: a pointer to the thread's descriptor.
fn owner_beside(lock: RemoteAddr, bytes: &[u8], context: &Context<'_>) -> Owner {
    let Some(id) = u64_at(bytes, 8).map(RemoteAddr).filter(|id| *id != RemoteAddr::NULL) else { return Owner::None };
    if context.is_descriptor(id) {
        return Owner::Thread(id);
    }
    // In other locks that may be anything. A thread that is gone, or is one of the parent, still has its number there.
    let Some(layout) = context.glibc().filter(|_| inside::stream_of(context.target, lock, true).is_some()) else {
        return Owner::None;
    };
    let tid = id.0.checked_add(layout.tid).and_then(|at| context.target.read_u32(RemoteAddr(at)).ok());
    match tid.and_then(|tid| i32::try_from(tid).ok()).filter(|tid| *tid > 0) {
        Some(tid) => Owner::Tid(InnerTid(tid)),
        None => Owner::Thread(id),
    }
}

/// The thread whose end is told by `word`.
fn joined(word: RemoteAddr, context: &Context<'_>) -> Option<RemoteAddr> {
    let layout = context.glibc()?;
    let words = [Some(layout.tid), layout.joinid].into_iter().flatten();
    words.filter_map(|at| word.checked_sub(at)).find(|id| context.is_descriptor(*id))
}

/// What a thread waits for that libc has put to sleep for ever (or until its time is over), because the kernel
/// found that the mutex it wants can never be had: it waits on a word of its own, and only the argument of the
/// call says for which mutex.
fn hopeless_wait(seen: &SeenWait<'_>, evidence: Evidence, context: &Context<'_>) -> Class {
    let inherits =
        |mutex: Mutex| mutex.is_plausible() && mutex.protocol() == MutexProtocol::Inherit && mutex.owner().is_some();
    match (seen.first_argument)().filter(|addr| Mutex::read(context.target, *addr).is_some_and(inherits)) {
        Some(mutex) => Class::new(SyncKind::Mutex, Family::Pthread, mutex, evidence),
        None => Class::new(SyncKind::Futex, Family::Libc, seen.futex.word, Evidence::Recorded),
    }
}
