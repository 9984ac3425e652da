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

/// Who has an id that no listed thread has.
#[derive(Clone, Copy)]
enum Stranger {
    /// A thread of the target, made after the others were listed.
    New(Lwp),
    Elsewhere(Elsewhere),
}

impl<'a> Owners<'a> {
    pub(super) fn new(target: &'a dyn Target, threads: &[Thread]) -> Self {
        let by_inner = threads.iter().filter_map(|thread| Some((thread.inner_lwp?, (thread.lwp, thread.id)))).collect();
        let by_id = threads.iter().filter_map(|thread| Some((thread.id?.0, (thread.lwp, thread.inner_lwp)))).collect();
        Self { target, by_inner, by_id, strangers: RefCell::default() }
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
        let elsewhere = match self.stranger(inner) {
            Stranger::New(lwp) => {
                holder.lwp = Some(lwp);
                return holder;
            }
            Stranger::Elsewhere(elsewhere) => elsewhere,
        };
        let may_be_shared = shared != Some(false) || in_shared_memory;
        match elsewhere {
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

    /// Whose an id is that no listed thread has. Each is looked for once, and not too many of them.
    fn stranger(&self, inner: InnerTid) -> Stranger {
        let mut known = self.strangers.borrow_mut();
        if let Some(stranger) = known.get(&inner) {
            return *stranger;
        }
        if known.len() >= MAX_STRANGERS || self.target.limits().is_over() {
            let why = "more owners than a look asks for are no threads of the process";
            self.target.limits().leave_out("processes that some locks say their owners are in", why);
            return Stranger::Elsewhere(Elsewhere::Unknown);
        }
        let new = self.target.lwp_of_inner(inner).filter(|lwp| self.target.has_thread(*lwp));
        let stranger = new.map_or_else(|| Stranger::Elsewhere(self.target.elsewhere(inner)), Stranger::New);
        known.insert(inner, stranger);
        stranger
    }
}
