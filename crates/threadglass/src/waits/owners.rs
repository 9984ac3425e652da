//! From what an object says of its owner to a thread.

use super::survey::{Content, Owner};
use crate::model::{Evidence, Holder, HolderStatus, Side, SyncKind, SyncState, Thread};
use crate::target::{Elsewhere, Target};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::collections::HashMap;

/// The target's threads, by the ids that objects have.
pub(super) struct Owners<'a> {
    target: &'a dyn Target,
    by_inner: HashMap<InnerTid, (Option<Lwp>, Option<PthreadId>)>,
    by_id: HashMap<RemoteAddr, (Option<Lwp>, Option<InnerTid>)>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(target: &'a dyn Target, threads: &[Thread]) -> Self {
        let by_inner = threads.iter().filter_map(|thread| Some((thread.inner_lwp?, (thread.lwp, thread.id)))).collect();
        let by_id = threads.iter().filter_map(|thread| Some((thread.id?.0, (thread.lwp, thread.inner_lwp)))).collect();
        Self { target, by_inner, by_id }
    }

    /// Who holds an object of `kind`, as it says itself.
    pub(super) fn recorded(&self, kind: SyncKind, content: &Content, in_shared_memory: bool) -> Vec<Holder> {
        let side = match content.state {
            SyncState::WriteLocked => Some(Side::Write),
            _ => None,
        };
        match content.owner {
            Owner::None => Vec::new(),
            // A join names the thread it waits for: that one `holds` its own end.
            Owner::Thread(id) => {
                let (lwp, inner) = self.by_id.get(&id).copied().unwrap_or((None, None));
                let status = if lwp.is_some() { HolderStatus::Alive } else { HolderStatus::Gone };
                let evidence = if kind == SyncKind::Join { Evidence::Recorded } else { Evidence::Derived };
                let thread = Some(PthreadId(id));
                vec![Holder { lwp, thread, recorded: inner, pid: None, side, status, evidence, why: None }]
            }
            Owner::Tid(inner) => vec![self.by_tid(inner, side, content.shared, in_shared_memory)],
        }
    }

    fn by_tid(&self, inner: InnerTid, side: Option<Side>, shared: Option<bool>, in_shared_memory: bool) -> Holder {
        let mut holder = Holder {
            lwp: Some(Lwp(inner.0)),
            thread: None,
            recorded: Some(inner),
            pid: None,
            side,
            status: HolderStatus::Alive,
            evidence: Evidence::Recorded,
            why: None,
        };
        if let Some((lwp, id)) = self.by_inner.get(&inner) {
            (holder.lwp, holder.thread) = (*lwp, *id);
            return holder;
        }
        // Made after the threads were listed.
        if let Some(lwp) = self.target.lwp_of_inner(inner).filter(|lwp| self.target.has_thread(*lwp)) {
            holder.lwp = Some(lwp);
            return holder;
        }
        let may_be_shared = shared != Some(false) || in_shared_memory;
        match self.target.elsewhere(inner) {
            Elsewhere::Process(pid, lwp) | Elsewhere::Parent(pid, lwp) if may_be_shared && in_shared_memory => {
                (holder.lwp, holder.pid, holder.status) = (Some(lwp), Some(pid), HolderStatus::OtherProcess);
            }
            Elsewhere::Parent(pid, lwp) => {
                (holder.lwp, holder.pid, holder.status) = (Some(lwp), Some(pid), HolderStatus::ForkParent);
            }
            // A stranger has the number by chance: it was given out again.
            Elsewhere::Process(..) | Elsewhere::Nowhere => holder.status = HolderStatus::Gone,
            Elsewhere::Unknown if may_be_shared => holder.status = HolderStatus::Unknown,
            Elsewhere::Unknown => holder.status = HolderStatus::Gone,
        }
        holder
    }
}
