//! Single threads, for interfaces that ask for one at a time.
//!
//! Memory may come from a debugger's callbacks here, so nothing in this file reads it on another
//! thread; what the kernel knows comes from `/proc`, if the process is known to be the same.

use super::describe::Describer;
use super::main_stack::mapped_stack;
use super::pairing::{by_hints, hints, walk_lists};
use super::running;
use crate::memory::{Memory, ReadError, ReadErrorKind};
use crate::model::{Evidence, Thread, ThreadState};
use crate::runtimes::glibc::{Descriptor, DescriptorReader, Layout, ListFault};
use crate::target::{LwpFacts, Target, ThreadList};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::collections::HashMap;

/// Why a thread cannot be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// There is no thread descriptor at this address.
    #[error("{0} is not a thread")]
    NotAThread(RemoteAddr),
    /// The lists of threads are corrupt.
    #[error(transparent)]
    List(#[from] ListFault),
    /// Memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// How often a list that keeps changing is walked again before its living threads have to be enough.
const WALKS_IN_MOTION: usize = 4;

fn fault_error(fault: ListFault) -> InspectError {
    match fault {
        ListFault::Unreadable(addr) => ReadError { addr, len: 16, kind: ReadErrorKind::Unmapped }.into(),
        fault => InspectError::List(fault),
    }
}

/// Of the threads on libc's lists, by memory alone.
impl ThreadList for Layout {
    fn lwps(&self, memory: &dyn Memory) -> Option<Vec<Lwp>> {
        let threads = Inspector { memory, layout: self, target: None }.list().ok()?;
        Some(threads.iter().filter(|thread| thread.tid > 0).map(|thread| Lwp(thread.tid)).collect())
    }
}

/// Looks at the threads of one target, one at a time.
pub struct Inspector<'a> {
    /// The target's memory.
    pub memory: &'a dyn Memory,
    /// Where the threads are in it.
    pub layout: &'a Layout,
    /// The process or core behind it, where that is known for sure: it has what memory cannot tell.
    pub target: Option<&'a dyn Target>,
}

impl Inspector<'_> {
    /// Whether libc has set its thread lists up: not so very early in a program's life.
    pub fn is_initialised(&self) -> Result<bool, ReadError> {
        for head in self.layout.heads_now(self.memory)? {
            if !self.memory.read_addr(head)?.is_null() {
                return Ok(true);
            }
        }
        // Without symbols the layout was found in a living thread.
        Ok(self.layout.heads.is_empty())
    }

    /// The descriptors of all threads, ended but unjoined ones included; neither those that are only
    /// being made nor those already given back.
    pub fn list(&self) -> Result<Vec<Descriptor>, InspectError> {
        // Whatever hides the heads hides the lists.
        let heads = self.layout.heads_now(self.memory)?;
        let mut threads = match self.target {
            // A program without symbols has no heads: what its threads registered leads into the lists.
            Some(target) if heads.is_empty() => self.registered(target),
            _ => HashMap::new(),
        };
        let mut found = walk_lists(self.memory, self.layout, threads.clone());
        for _ in 0..WALKS_IN_MOTION {
            if found.broken.is_none() {
                break;
            }
            // Where threads come and go while we look, those that live are found by what they registered
            // with the kernel, so that a list in motion costs none of them.
            threads = self.target.map(|target| self.registered(target)).unwrap_or_default();
            let before = std::mem::replace(&mut found, walk_lists(self.memory, self.layout, threads.clone()));
            // Nothing moved, and still it breaks: the list is corrupt or its memory is kept from us, and what
            // was found is not all.
            if let Some(fault) = found.broken
                && before.broken == found.broken
                && before.threads == found.threads
            {
                return Err(fault_error(fault));
            }
        }
        if !threads.is_empty() {
            threads.extend(found.threads.into_iter().map(|thread| (thread.id.0, thread)));
            found.threads = threads.into_values().collect();
        }
        if let (true, Some(head)) = (found.threads.is_empty(), heads.first()) {
            // There is always the main thread: not even that one could be read.
            return Err(fault_error(found.broken.unwrap_or(ListFault::Unreadable(*head))));
        }
        let mut threads: Vec<_> = found.threads.into_iter().filter(Descriptor::is_in_use).collect();
        // Main first (it alone has no start routine), then by age of the LWP, ended ones last.
        threads.sort_by_key(|thread| (thread.tid <= 0, thread.start_routine != Some(RemoteAddr::NULL), thread.tid));
        Ok(threads)
    }

    fn registered(&self, target: &dyn Target) -> HashMap<RemoteAddr, Descriptor> {
        let facts: Vec<_> = target.facts(&target.lwps().unwrap_or_default()).into_iter().flatten().collect();
        let threads = by_hints(self.memory, self.layout, &hints(&facts)).into_iter().flatten();
        threads.map(|thread| (thread.id.0, thread)).collect()
    }

    /// The descriptor of thread `id`.
    pub fn descriptor(&self, id: PthreadId) -> Result<Descriptor, InspectError> {
        match self.descriptor_at(id)? {
            thread if thread.is_given_back() => Err(InspectError::NotAThread(id.0)),
            thread => Ok(thread),
        }
    }

    /// The descriptor at `id`, even if its thread has gone for good: a thread that libc did not make may run on it.
    pub fn descriptor_at(&self, id: PthreadId) -> Result<Descriptor, InspectError> {
        match DescriptorReader::new(self.layout).read(self.memory, id.0) {
            Ok(Some(thread)) => Ok(thread),
            Ok(None) => Err(InspectError::NotAThread(id.0)),
            // Either the reading failed, or nobody's address was asked for: the lists decide.
            Err(error) => match self.list() {
                Ok(threads) if threads.iter().all(|thread| thread.id != id) => Err(InspectError::NotAThread(id.0)),
                _ => Err(error.into()),
            },
        }
    }

    /// The LWP of a descriptor, as we see it; `None` for a thread that has ended.
    pub fn lwp_of(&self, thread: &Descriptor) -> Option<Lwp> {
        let inner = (thread.tid > 0).then_some(thread.tid)?;
        match self.target {
            None => Some(Lwp(inner)),
            Some(target) => target.lwp_of_inner(InnerTid(inner)),
        }
    }

    /// Kernel facts of the threads `lwps`, those that run told apart from those that only could.
    pub fn facts(target: &dyn Target, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let mut facts = target.facts(lwps);
        running::refine(target, facts.iter_mut().flatten());
        facts
    }

    /// What is known of a thread from its descriptor and the kernel's facts. Without facts (a debugger's
    /// core, a process that is not ours to look at) the state of a living thread is unknown.
    pub fn describe(&self, thread: &Descriptor, facts: Option<&LwpFacts>) -> Thread {
        let mut describer = Describer::new(self.target, None);
        let record = thread.record(self.layout);
        let mut described = match facts {
            Some(facts) => describer.living(facts, Some(&record), &mut Vec::new()),
            None if thread.tid > 0 => Thread {
                lwp: self.lwp_of(thread),
                inner_lwp: Some(InnerTid(thread.tid)),
                state: ThreadState::Unknown,
                state_evidence: Evidence::Unknown,
                priority: record.priority(),
                ..describer.by_record(Some(&record))
            },
            None => describer.zombie(&record),
        };
        if self.target.is_none() && described.lwp.is_some() {
            let of_main = || thread.stack_end.and_then(|end| mapped_stack(self.memory, end));
            described.stack = described.stack.or_else(of_main);
        }
        described
    }
}
