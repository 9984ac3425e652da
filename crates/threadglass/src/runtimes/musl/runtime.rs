//! musl's locks, behind the contract of [`crate::runtimes`].

use super::locks::{MAX_TID, Mutex, barrier, cond, once, rwlock, semaphore, size_of};
use super::robust;
use super::waits::{Waiting, by_function, by_numbers, joined};
use crate::model::{Detail, Family, SyncKind, SyncObject, SyncState};
use crate::runtimes::{Class, Content, Context, LockWord, Owner, Runtime, SeenWait, SetError, SetPlan, Spot, u32_at};
use crate::target::LwpFacts;
use crate::{InnerTid, Lwp, PthreadId};
use std::collections::{BTreeMap, HashMap};

/// Set in the word of a lock of musl's own while it is held.
const HELD: u32 = 1 << 31;
/// Set in the word of a stream that is waited for: the rest is its owner.
const STREAM_WAITERS: u32 = 1 << 30;

/// POSIX threads of musl, and the locks that musl keeps for itself.
pub(crate) struct Musl;

impl Runtime for Musl {
    fn families(&self) -> &'static [Family] {
        &[Family::Musl, Family::MuslInside]
    }

    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let (Spot::Entry(name, evidence) | Spot::Frame(name, evidence)) = spot else { return None };
        let waiting = Waiting::in_musl(name).filter(|_| context.musl().is_some() && !seen.past_libc)?;
        by_function(waiting, seen, evidence, context)
    }

    fn by_numbers(&self, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        context.musl()?;
        // Called by way of syscall(2), none of musl's own objects is meant.
        let is_other = seen.past_libc || seen.call.is_some_and(|call| self.passes_on(&call.function));
        if is_other { None } else { by_numbers(seen, context) }
    }

    fn passes_on(&self, function: &str) -> bool {
        Waiting::in_musl(function) == Some(Waiting::Raw)
    }

    fn bytes_of(&self, kind: SyncKind, family: Family) -> usize {
        if family == Family::Musl { size_of(kind) } else { 4 }
    }

    fn decode(&self, class: &Class, bytes: &[u8], context: &Context<'_>) -> Content {
        let word = u32_at(bytes, 0).unwrap_or(0);
        if class.family == Family::MuslInside {
            return own_lock(bytes, word);
        }
        let memory = context.target;
        let content = match class.kind {
            SyncKind::Mutex => Mutex::new(bytes).map(|mutex| mutex.content(bytes)),
            SyncKind::Rwlock => rwlock(bytes),
            SyncKind::Cond => cond(bytes, memory),
            SyncKind::Semaphore => semaphore(bytes),
            SyncKind::Barrier => barrier(bytes, memory),
            SyncKind::Once => once(bytes),
            SyncKind::Join => {
                let owner = joined(class.address, context).map_or(Owner::None, Owner::Thread);
                let state = if word == 0 { SyncState::Exited } else { SyncState::Running };
                Some(Content { owner, ..Content::plain(bytes, None, state, Detail::None {}) })
            }
            _ => None,
        };
        content.unwrap_or_else(|| Content::plain(bytes, None, SyncState::Unknown, Detail::None {}))
    }

    fn names_descriptor(&self, kind: SyncKind, _: Family) -> bool {
        kind == SyncKind::Join
    }

    fn registered(
        &self,
        context: &Context<'_>,
        _: &BTreeMap<Lwp, LwpFacts>,
        ids: &HashMap<Lwp, Option<PthreadId>>,
    ) -> Vec<Class> {
        context
            .musl()
            .map_or_else(Vec::new, |layout| robust::lists(context.target, layout, ids.values().copied().flatten()))
    }

    fn held_by_content(&self, bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        let mutex = Mutex::new(bytes).filter(|mutex| mutex.is_plausible() && mutex.is_in_list())?;
        matches!(mutex.owner(), Owner::Tid(owner) if is_thread(owner)).then_some(SyncKind::Mutex)
    }

    fn in_use(&self, kind: SyncKind, bytes: &[u8], is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        // Many other things are of the size of a lock, and are left out unless they show signs of use.
        match kind {
            SyncKind::Mutex => self.held_by_content(bytes, is_thread),
            _ => None,
        }
    }

    fn hides_holder(&self, family: Family) -> bool {
        family == Family::MuslInside
    }

    fn executes_once(&self, name: &str) -> bool {
        Waiting::in_musl(name) == Some(Waiting::Once)
    }

    fn is_part(&self, function: &str) -> bool {
        const NAMES: [&str; 9] = [
            "timedwait",
            "timedwait_cp",
            "syscall_cp",
            "syscall_cp_c",
            "syscall_cp_asm",
            "wait",
            "cp_begin",
            "cp_end",
            "sccp",
        ];
        function.starts_with("__") && NAMES.contains(&function.trim_start_matches('_'))
    }

    fn lock_word(&self, kind: SyncKind, family: Family) -> LockWord {
        let word = LockWord { sizes: &[4], is_called: true, ..LockWord::default() };
        match (family, kind) {
            (Family::Musl, SyncKind::Mutex) => {
                LockWord { at: 4, held: |word| u64::from(word as u32 & !HELD != 0), ..word }
            }
            (Family::Musl, SyncKind::Rwlock) => {
                // All but the bit of those that wait; a writer has them all.
                let held = |word: u64| match word as u32 & !HELD {
                    readers if readers == !HELD => 1,
                    readers => u64::from(readers),
                };
                LockWord { held, ..word }
            }
            (Family::Musl, SyncKind::Once) => LockWord { held: |word| word & 1, ..word },
            (Family::Musl, SyncKind::Semaphore) => LockWord {
                held: |word| match word as u32 {
                    u32::MAX => u64::from(u32::MAX),
                    count => u64::from(u32::MAX - (count & !HELD)),
                },
                added: |by| i64::from(by as i32).wrapping_neg(),
                ..word
            },
            _ => word,
        }
    }

    fn alignment(&self, family: Family) -> u64 {
        if family == Family::Musl { 8 } else { 4 }
    }

    fn set_state(&self, _: &SyncObject, _: &[u8], _: i32) -> Result<SetPlan, SetError> {
        Err(SetError::NotCapable("a lock of musl is not set: only locks of glibc and of Rust's standard library are"))
    }
}

/// A lock that musl keeps for itself: of a stream, with its owner, or one that counts who wants it.
fn own_lock(bytes: &[u8], word: u32) -> Content {
    let owner = word & !STREAM_WAITERS;
    let is_stream = word & STREAM_WAITERS != 0 && (1..=MAX_TID).contains(&owner);
    let state = match word {
        _ if is_stream => SyncState::Locked,
        word if word & HELD != 0 => SyncState::Locked,
        0 => SyncState::Unlocked,
        _ => SyncState::Unknown,
    };
    let plain = Content::plain(bytes, Some(4), state, Detail::Futex { value: word });
    let owner = if is_stream { Owner::Tid(InnerTid(owner as i32)) } else { Owner::None };
    Content { owner, has_waiters: true, shared: Some(false), ..plain }
}
