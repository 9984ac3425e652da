//! Java's HotSpot: monitors, and where its threads are parked. libjvm describes its own structures ([`vm_structs`]).
//!
//! Locks of `java.util.concurrent` are objects of the heap, which `jstack` reads well: of a parked thread no more is told.

mod threads;
mod vm_structs;

pub(super) use threads::JavaThreads;

use super::{Class, Content, Context, Nature, Owner, Runtime, SeenWait};
#[cfg(feature = "internals")]
use crate::RemoteAddr;
#[cfg(feature = "internals")]
use crate::memory::Memory;
use crate::model::{Detail, Evidence, Family, SyncKind, SyncState};
use crate::target::Language;
use threads::JavaWait;

/// A member of a class, in the table that the variable at `pointer` leads to.
#[cfg(feature = "internals")]
pub(super) fn member(memory: &dyn Memory, pointer: RemoteAddr, class: &str, name: &str) -> Option<u64> {
    vm_structs::VmStructs::read(memory, pointer)?.get(&[class], name)
}

/// The thread of the virtual machine that waits in Java code for work.
const FINALIZER: &str = "Finalizer";

pub(crate) struct HotSpot;

impl Runtime for HotSpot {
    fn families(&self) -> &'static [Family] {
        &[Family::Java]
    }

    fn known_better(&self, class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        let java = context.language(Language::Java)?;
        seen.call.filter(|call| java.module.contains(&call.address))?;
        let own = Class::new(SyncKind::Cond, Family::Runtime, class.address, class.evidence);
        let of_java = |kind, address, evidence| Class::new(kind, Family::Java, address, evidence);
        let park = of_java(SyncKind::Park, class.address, class.evidence);
        match class.kind {
            // Java code waits by none.
            SyncKind::Semaphore => Some(own),
            SyncKind::Cond => Some(match context.java_threads() {
                Some(threads) => match threads.wait(context.target, seen.lwp, class.address) {
                    JavaWait::Enter(monitor) => of_java(SyncKind::Mutex, monitor, Evidence::Recorded),
                    // It waits for objects to bury.
                    JavaWait::Notify(_) if context.name_of(seen.lwp) == Some(FINALIZER) => own,
                    JavaWait::Notify(monitor) => of_java(SyncKind::Cond, monitor, Evidence::Recorded),
                    JavaWait::Unpark => park,
                    JavaWait::Internal => own,
                },
                None => park,
            }),
            _ => None,
        }
    }

    fn bytes_of(&self, _: SyncKind, _: Family) -> usize {
        8
    }

    fn decode(&self, class: &Class, bytes: &[u8], context: &Context<'_>) -> Content {
        let plain = Content::plain(bytes, None, SyncState::Waiting, Detail::None {});
        let plain = Content { shared: Some(false), ..plain };
        let Some(threads) = context.java_threads().filter(|_| class.kind == SyncKind::Mutex) else { return plain };
        let (owner, is_held) = threads.owner(context.target, class.address);
        let state = if is_held { SyncState::Locked } else { SyncState::Unlocked };
        Content { owner: owner.map_or(Owner::None, Owner::Tid), state, ..plain }
    }

    fn hides_holder(&self, _: Family) -> bool {
        true
    }

    fn nature(&self, kind: SyncKind, _: Family) -> Nature {
        match kind {
            SyncKind::Park => Nature::Unseen(Some("parked by Java code")),
            // Whoever could notify it runs Java code, or waits itself for what is seen there.
            SyncKind::Cond => Nature::Unseen(None),
            _ => Nature::Plain,
        }
    }

    /// One of those that wait to enter a monitor looks from time to time whether it is free.
    fn keeps_waiting(&self, kind: SyncKind, _: Family) -> bool {
        kind == SyncKind::Mutex
    }
}
