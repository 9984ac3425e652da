//! Threads that libc did not make (`clone` without CLONE_SETTLS) and that run on a thread's descriptor whose own thread has
//! ended.
//!
//! A debugger that asks for the thread of such an LWP gets that descriptor, as glibc's library gives it, and asks for the
//! thread's information next. So who was found on a descriptor without a thread is remembered.

use crate::session::{Session, lock};
use std::collections::HashMap;
use threadglass::internals::Inspector;
use threadglass::internals::glibc::Descriptor;
use threadglass::target::KernelFacts;
use threadglass::{Lwp, PthreadId};

/// The LWP that was found on each descriptor.
pub(crate) type Borrowers = HashMap<PthreadId, Lwp>;

impl Session {
    /// Remembers that `lwp` runs on `descriptor`, if no thread of its own does.
    pub(crate) fn note_borrower(&self, descriptor: &Descriptor, lwp: Lwp) {
        if descriptor.tid <= 0 {
            lock(&self.borrowers).insert(descriptor.id, lwp);
        }
    }

    /// The LWP that runs on `descriptor`: its own, or one that was found there and is there still.
    pub(crate) fn lwp_on(&self, inspector: &Inspector<'_>, descriptor: &Descriptor) -> Option<Lwp> {
        inspector.lwp_of(descriptor).or_else(|| {
            let lwp = lock(&self.borrowers).get(&descriptor.id).copied()?;
            let is_there = !self.is_elsewhere(lwp)
                && self.client().and_then(|client| client.thread_pointer(lwp)) == Some(descriptor.id.0);
            if !is_there {
                lock(&self.borrowers).remove(&descriptor.id);
            }
            is_there.then_some(lwp)
        })
    }

    /// Whether `lwp` is known not to run in the process's memory. A debugger may have other processes too, in which the same
    /// addresses can be threads.
    pub(crate) fn is_elsewhere(&self, lwp: Lwp) -> bool {
        self.live().is_some_and(|live| !live.has_thread(lwp) && live.shares_memory_with(lwp) == Some(false))
    }
}
