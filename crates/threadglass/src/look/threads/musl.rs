//! Threads of a process that runs on musl.

use crate::InnerTid;
use crate::model::Gap;
use crate::runtimes::ThreadRecord;
use crate::runtimes::musl::{Descriptor, Layout, ThreadRing};
use crate::target::{LwpFacts, Target};
use std::collections::HashMap;

/// The threads that musl knows.
pub(super) struct MuslThreads {
    pub(super) layout: Layout,
    ring: ThreadRing,
    by_inner: HashMap<InnerTid, Descriptor>,
}

impl MuslThreads {
    /// Finds them in `target`, of whose threads the kernel told `facts`; `None` where there is no musl.
    pub(super) fn find(target: &dyn Target, facts: &[LwpFacts]) -> Option<Self> {
        let (layout, start) = Layout::discover(target, facts)?;
        let ring = ThreadRing::walk(target, &layout, start);
        Some(Self { layout, ring, by_inner: HashMap::new() })
    }

    /// Keeps the threads that still have the id that they had. What a thread registered with the kernel is not needed: a
    /// thread leaves the ring before it ends.
    pub(super) fn confirm(&mut self, target: &dyn Target, gaps: &mut Vec<Gap>) {
        self.ring.confirm(target, &self.layout);
        let threads = self.ring.threads.iter();
        self.by_inner = threads.map(|thread| (InnerTid(thread.tid), thread.clone())).collect();
        if !self.ring.is_whole {
            let why = "musl's ring of threads changed during the look, or is corrupt";
            gaps.push(Gap::whole("ids of some threads", why));
        }
        gaps.push(Gap::whole("threads that have exited and were not joined", "musl keeps no list of them"));
    }

    /// What musl has recorded of the thread `inner`.
    pub(super) fn record(&self, target: &dyn Target, inner: InnerTid) -> Option<ThreadRecord> {
        self.by_inner.get(&inner).map(|thread| thread.record(target, &self.layout))
    }
}
