//! From what an object says of its owner to a thread.

use crate::model::{Evidence, Holder, HolderStatus, Side, SyncKind, SyncState, Thread};
use crate::runtimes::{Content, Owner};
use crate::target::{Elsewhere, Target};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::cell::RefCell;
use std::collections::HashMap;

/// Owners that are looked for outside of the target. Each costs a few files of `/proc`.
const MAX_STRANGERS: usize = 1024;

/// The target's threads, by the ids that objects have.
pub(super) struct Owners<'a> {
    target: &'a dyn Target,
    by_inner: HashMap<InnerTid, (Option<Lwp>, Option<PthreadId>)>,
    by_id: HashMap<RemoteAddr, (Option<Lwp>, Option<InnerTid>)>,
    /// Ids that belong to no thread that was listed, and whose they are.
    strangers: RefCell<HashMap<InnerTid, Stranger>>,
}

/// Who has an id that no listed thread has: a thread of the target made after the others were listed, or somebody else.
type Stranger = Result<Lwp, Elsewhere>;

impl<'a> Owners<'a> {
    pub(super) fn new(target: &'a dyn Target, threads: &[Thread]) -> Self {
        let by_inner = threads.iter().filter_map(|thread| Some((thread.inner_lwp?, (thread.lwp, thread.id)))).collect();
        let by_id = threads.iter().filter_map(|thread| Some((thread.id?.0, (thread.lwp, thread.inner_lwp)))).collect();
        Self { target, by_inner, by_id, strangers: RefCell::default() }
    }

    /// Who holds an object of `kind`, as it says itself.
    pub(super) fn recorded(&self, kind: SyncKind, content: &Content, in_shared_memory: bool) -> Vec<Holder> {
        let side = (content.state == SyncState::WriteLocked).then_some(Side::Write);
        match content.owner {
            Owner::None => Vec::new(),
            Owner::Ended => {
                let (status, evidence) = (HolderStatus::Gone, Evidence::Recorded);
                vec![Holder { side, status, evidence, ..Holder::default() }]
            }
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
        (holder.lwp, holder.pid, holder.status) = match self.stranger(inner) {
            Ok(lwp) => (Some(lwp), None, HolderStatus::Alive),
            Err(Elsewhere::Process(pid, lwp) | Elsewhere::Parent(pid, lwp)) if in_shared_memory => {
                (Some(lwp), Some(pid), HolderStatus::OtherProcess)
            }
            Err(Elsewhere::Parent(pid, lwp)) => (Some(lwp), Some(pid), HolderStatus::ForkParent),
            Err(Elsewhere::Unknown) if shared != Some(false) || in_shared_memory => {
                (holder.lwp, None, HolderStatus::Unknown)
            }
            // Another process has the number by chance: it was given out again.
            Err(Elsewhere::Process(..) | Elsewhere::Nowhere | Elsewhere::Unknown) => {
                (holder.lwp, None, HolderStatus::Gone)
            }
        };
        holder
    }

    /// Whose an id is that no listed thread has. Each is looked for once, and not too many of them.
    fn stranger(&self, inner: InnerTid) -> Stranger {
        let mut known = self.strangers.borrow_mut();
        if let Some(stranger) = known.get(&inner) {
            return *stranger;
        }
        if known.len() >= MAX_STRANGERS || self.target.limits().is_over() {
            let why = "more owners are outside the process than one look asks about";
            self.target.limits().leave_out("processes of the owners of some locks", why);
            return Err(Elsewhere::Unknown);
        }
        let new = self.target.lwp_of_inner(inner).filter(|lwp| self.target.has_thread(*lwp));
        let stranger = new.ok_or_else(|| self.target.elsewhere(inner));
        known.insert(inner, stranger);
        stranger
    }
}
