//! Which pthread is which LWP: never a wrong pair, also while threads come and go.

use crate::memory::Memory;
use crate::runtimes::glibc::{Descriptor, DescriptorReader, Layout, ListFault, ListWalk, walk};
use crate::sys::parallel::in_parallel;
use crate::target::{Hint, LwpFacts, Target};
use crate::{Lwp, RemoteAddr};
use std::collections::HashMap;

/// How often a list that changed under us is walked again.
const WALKS: usize = 4;

/// Descriptors found, and what they were found for.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// The descriptor of each living LWP that has one.
    pub(super) of_lwp: HashMap<Lwp, Descriptor>,
    /// Threads that have exited and wait to be joined.
    pub(super) zombies: Vec<Descriptor>,
    /// Why the lists may not have been seen whole.
    pub(super) broken: Option<ListFault>,
}

/// What leads from each of `facts` to a descriptor.
pub(super) fn hints(facts: &[LwpFacts]) -> Vec<(Lwp, Hint)> {
    facts.iter().filter_map(|facts| Some((facts.lwp, facts.hint()?))).collect()
}

/// Walks libc's lists, again when they change under us. `known` are descriptors read before.
pub(super) fn walk_lists(memory: &dyn Memory, layout: &Layout, mut known: HashMap<RemoteAddr, Descriptor>) -> ListWalk {
    let reader = DescriptorReader::new(layout);
    for _ in 1..WALKS {
        let found = walk(memory, &reader, &starts(memory, layout, &known), &known);
        // One that is too long will be so again.
        if matches!(found.broken, None | Some(ListFault::Endless)) {
            return found;
        }
        // What we knew is out of date: take the nodes as they are now.
        let bases: Vec<_> = known.keys().copied().collect();
        let again = reader.read_all(memory, &bases);
        known = bases.into_iter().zip(again).filter_map(|(base, thread)| Some((base, thread?))).collect();
    }
    walk(memory, &reader, &starts(memory, layout, &known), &known)
}

fn starts(memory: &dyn Memory, layout: &Layout, known: &HashMap<RemoteAddr, Descriptor>) -> Vec<RemoteAddr> {
    match layout.heads_now(memory) {
        Ok(heads) if !heads.is_empty() => heads,
        // Any node leads around its whole list.
        _ => known.keys().map(|base| base.offset(layout.list)).collect(),
    }
}

/// The descriptor that each of `hints` leads to, if it is that thread's.
pub(super) fn by_hints(memory: &dyn Memory, layout: &Layout, hints: &[(Lwp, Hint)]) -> Vec<Option<Descriptor>> {
    let base = |hint: &Hint| hint.anchor.base(layout.robust_head).unwrap_or(RemoteAddr::NULL);
    let bases: Vec<_> = hints.iter().map(|(_, hint)| base(hint)).collect();
    let threads = DescriptorReader::new(layout).read_all(memory, &bases).into_iter();
    threads.zip(hints).map(|(thread, (_, hint))| thread.filter(|thread| thread.tid == hint.inner.0)).collect()
}

impl Pairs {
    /// Pairs by what each thread registered with the kernel. A brand-new thread has not done so yet,
    /// and one that leaves may have handed its descriptor on: the id in it must agree.
    pub(super) fn add_by_anchors(&mut self, target: &dyn Target, layout: &Layout, hints: &[(Lwp, Hint)]) {
        let threads = in_parallel(hints, |part| by_hints(target, layout, part));
        let found = hints.iter().zip(threads).filter_map(|((lwp, _), thread)| Some((*lwp, thread?)));
        self.of_lwp.extend(found);
    }

    /// Pairs the rest by id along libc's lists, and finds the zombies there.
    pub(super) fn add_by_list(&mut self, memory: &dyn Memory, layout: &Layout, facts: &[&LwpFacts]) {
        let known = self.of_lwp.values().map(|thread| (thread.id.0, thread.clone())).collect();
        let found = walk_lists(memory, layout, known);
        self.broken = found.broken;

        let by_inner: HashMap<i32, Lwp> = facts.iter().map(|facts| (facts.inner.0, facts.lwp)).collect();
        for thread in found.threads {
            if thread.is_unjoined_zombie() {
                self.zombies.push(thread);
            } else if let Some(lwp) = by_inner.get(&thread.tid) {
                self.of_lwp.entry(*lwp).or_insert(thread);
            }
        }
        self.pair_ended_main(facts);
    }

    /// The leader whose main function called `pthread_exit` is a zombie of the kernel and of libc
    /// alike; its descriptor's id was cleared, but only main has no start routine.
    fn pair_ended_main(&mut self, facts: &[&LwpFacts]) {
        let Some(leader) = facts.iter().find(|facts| facts.state.has_ended()) else { return };
        let is_main = |thread: &Descriptor| thread.start_routine == Some(RemoteAddr::NULL);
        if let Some(index) = self.zombies.iter().position(is_main) {
            let main = self.zombies.swap_remove(index);
            self.of_lwp.entry(leader.lwp).or_insert(main);
        }
    }

    /// Reads every id once more. A pair stands only if its descriptor still names that thread: the
    /// kernel clears the id when the thread ends, so it then lived from the first read to this one.
    pub(super) fn confirm(&mut self, target: &dyn Target, layout: &Layout) {
        let reader = DescriptorReader::new(layout);
        let (lwps, bases): (Vec<_>, Vec<_>) = self.of_lwp.iter().map(|(lwp, thread)| (*lwp, thread.id.0)).unzip();
        let tids = in_parallel(&bases, |part| reader.read_tids(target, part));
        for (lwp, tid) in lwps.iter().zip(tids) {
            if tid != Some(self.of_lwp[lwp].tid) {
                self.of_lwp.remove(lwp);
            }
        }
        let bases: Vec<_> = self.zombies.iter().map(|thread| thread.id.0).collect();
        let again = reader.read_all(target, &bases);
        let mut again = again.into_iter();
        self.zombies.retain(|_| again.next().flatten().is_some_and(|thread| thread.is_unjoined_zombie()));
    }
}
