//! CPython: the lock of its interpreter (the GIL), and the locks of its module `threading`.
//!
//! A `threading.RLock` records the thread that has it, and so does the GIL. A `threading.Lock` does not: any thread may
//! release it. It is told as what it is built on, a semaphore, and no holder is looked for.

mod gil;
mod locks;

use super::{Class, Content, Context, Nature, Owner, Runtime, SeenWait, u64_at};
use crate::RemoteAddr;
#[cfg(feature = "internals")]
use crate::memory::Memory;
use crate::model::{Detail, Family, SyncKind, SyncState};
use crate::target::Language;

/// Of a `threading.RLock`, in all versions: the thread that has it, behind the head of an object and its lock.
const RLOCK_OWNER: usize = 24;

/// What the lock of an interpreter at `address` says.
#[cfg(feature = "internals")]
pub(super) fn gil(memory: &dyn Memory, address: RemoteAddr, is_thread: gil::IsThread<'_>) -> Option<Content> {
    let bytes = memory.read_vec(address, gil::SIZE).ok()?;
    Some(gil::decode(memory, address, &bytes, is_thread))
}

pub(crate) struct CPython;

impl Runtime for CPython {
    fn families(&self) -> &'static [Family] {
        &[Family::Python, Family::Gil]
    }

    fn known_better(&self, class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let python = context.language(Language::Python)?;
        match class.kind {
            SyncKind::Cond => gil::of_cond(class, python, context),
            SyncKind::Semaphore => locks::of_semaphore(class, seen, python, context),
            _ => None,
        }
    }

    fn bytes_of(&self, kind: SyncKind, family: Family) -> usize {
        match (family, kind) {
            (Family::Gil, _) => gil::SIZE,
            (_, SyncKind::Mutex) => RLOCK_OWNER + 8,
            _ => 1,
        }
    }

    fn decode(&self, class: &Class, bytes: &[u8], context: &Context<'_>) -> Content {
        if class.family == Family::Gil {
            return gil::decode(context.target, class.address, bytes, &|id| context.is_descriptor(id));
        }
        let state = match (class.kind, bytes.first()) {
            (SyncKind::Mutex, _) if u64_at(bytes, RLOCK_OWNER) == Some(0) => SyncState::Unlocked,
            (SyncKind::Cond, _) => SyncState::Waiting,
            _ => SyncState::Locked,
        };
        // The thread is named by its descriptor.
        let owner = u64_at(bytes, RLOCK_OWNER).map(RemoteAddr).filter(|id| context.is_descriptor(*id));
        let plain = Content::plain(bytes, None, state, Detail::None {});
        Content { owner: owner.map_or(Owner::None, Owner::Thread), shared: Some(false), ..plain }
    }

    fn names_descriptor(&self, _: SyncKind, _: Family) -> bool {
        true
    }

    fn hides_holder(&self, _: Family) -> bool {
        true
    }

    fn nature(&self, kind: SyncKind, _: Family) -> Nature {
        if kind == SyncKind::Semaphore { Nature::Unseen(None) } else { Nature::Plain }
    }

    /// Whoever wants the GIL wakes every few milliseconds to ask for it, and goes on waiting.
    fn keeps_waiting(&self, _: SyncKind, family: Family) -> bool {
        family == Family::Gil
    }
}
