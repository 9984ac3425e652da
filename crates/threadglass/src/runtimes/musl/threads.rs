//! The ring of all threads, in a process that does not stand still.

use super::layout::Layout;
use crate::memory::{Memory, read_arrays};
use crate::runtimes::{ThreadRecord, u32_at, u64_at};
use crate::target::Target;
use crate::{PthreadId, RemoteAddr};
use std::collections::HashSet;

/// More threads than any process has: a ring that is longer lies.
const MAX_THREADS: usize = 1 << 17;
/// How often a ring that changed under us is walked again.
const WALKS: usize = 4;

/// States of a thread in its descriptor: ended, and detached.
const EXITED: u32 = 0;
const DETACHED: u32 = 3;

/// What is read of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// The thread's `pthread_t`, which is the descriptor's address.
    pub(crate) id: PthreadId,
    /// Kernel thread id as the target sees it.
    pub(crate) tid: i32,
    prev: RemoteAddr,
    next: RemoteAddr,
    detach_state: u32,
    /// One past the highest address of the stack, its size, and the guard below it; main has none.
    stack: Option<(RemoteAddr, u64, u64)>,
}

impl Descriptor {
    fn read(memory: &dyn Memory, layout: &Layout, base: RemoteAddr) -> Option<Self> {
        let bytes = memory.read_vec(base, layout.span()).ok()?;
        let word = |at: u64| u64_at(&bytes, at as usize);
        let stack = layout.stack();
        let (top, size, guard) = (RemoteAddr(word(stack)?), word(stack + 8)?, word(stack + 16)?);
        let descriptor = Self {
            id: PthreadId(base),
            tid: u32_at(&bytes, layout.tid as usize)? as i32,
            prev: RemoteAddr(word(layout.prev())?),
            next: RemoteAddr(word(layout.next())?),
            detach_state: u32_at(&bytes, layout.detach_state() as usize)?,
            stack: (!top.is_null() && size < top.0).then_some((top, size, guard)),
        };
        (word(0)? == base.0).then_some(descriptor)
    }

    /// The thread, with where it began as `start` tells.
    pub(crate) fn record(&self, target: &dyn Target, layout: &Layout) -> ThreadRecord {
        let start = self.stack.and_then(|(top, _, _)| {
            let arguments = (top.0 & !7).checked_sub(layout.start_arguments())?;
            target.read_addr(RemoteAddr(arguments)).ok().filter(|start| target.module_at(*start).is_some())
        });
        ThreadRecord {
            id: self.id,
            tid: self.tid,
            start,
            detached: (self.detach_state != EXITED).then_some(self.detach_state == DETACHED),
            stack: self.stack,
            ..ThreadRecord::default()
        }
    }
}

/// The threads of the ring.
#[derive(Debug, Default)]
pub(crate) struct ThreadRing {
    pub(crate) threads: Vec<Descriptor>,
    /// Whether all of the ring was seen at one time.
    pub(crate) is_whole: bool,
}

impl ThreadRing {
    /// Walks the ring from `start`, again when it changes under us.
    pub(crate) fn walk(memory: &dyn Memory, layout: &Layout, start: RemoteAddr) -> Self {
        let mut ring = walk_once(memory, layout, start);
        for _ in 1..WALKS {
            if ring.is_whole {
                break;
            }
            let again = walk_once(memory, layout, start);
            if again.is_whole || again.threads.len() > ring.threads.len() {
                ring = again;
            }
        }
        ring
    }

    /// Reads every id once more, and keeps the threads that still have it.
    pub(crate) fn confirm(&mut self, memory: &dyn Memory, layout: &Layout) {
        let places: Vec<RemoteAddr> = self.threads.iter().map(|thread| thread.id.0.offset(layout.tid)).collect();
        let mut tids = read_arrays(memory, &places).into_iter();
        self.threads.retain(|thread| tids.next().flatten().map(i32::from_le_bytes) == Some(thread.tid));
    }
}

fn walk_once(memory: &dyn Memory, layout: &Layout, start: RemoteAddr) -> ThreadRing {
    let mut ring = ThreadRing::default();
    let mut seen = HashSet::new();
    let (mut base, mut previous): (_, Option<RemoteAddr>) = (start, None);
    while seen.insert(base) && seen.len() <= MAX_THREADS {
        let Some(thread) = Descriptor::read(memory, layout, base) else { return ring };
        if previous.is_some_and(|previous| previous != thread.prev) {
            return ring;
        }
        previous = Some(base);
        base = thread.next;
        ring.threads.push(thread);
    }
    ring.is_whole = base == start;
    ring
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    /// A ring of threads, whose links are as given.
    fn ring(links: &[(u64, u64, u64)]) -> Bytes {
        let mut memory = Bytes::default();
        for (base, prev, next) in links {
            let mut bytes = vec![0; 256];
            for (at, word) in [(0, *base), (16, *prev), (24, *next), (48, *base & 0xff)] {
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            memory.map(RemoteAddr(*base), bytes);
        }
        memory
    }

    fn walked(memory: &Bytes) -> (Vec<i32>, bool) {
        let ring = ThreadRing::walk(memory, &Layout { tid: 48 }, RemoteAddr(0x1010));
        (ring.threads.iter().map(|thread| thread.tid).collect(), ring.is_whole)
    }

    #[test]
    fn rings_whole_and_broken() {
        let whole = [(0x1010, 0x3030, 0x2020), (0x2020, 0x1010, 0x3030), (0x3030, 0x2020, 0x1010)];
        assert_eq!(walked(&ring(&whole)), (vec![0x10, 0x20, 0x30], true));
        assert_eq!(walked(&ring(&whole[..2])), (vec![0x10, 0x20], false), "one cannot be read");
        let torn = [whole[0], (0x2020, 0x1010, 0x3030), (0x3030, 0x1010, 0x1010)];
        assert_eq!(walked(&ring(&torn)), (vec![0x10, 0x20], false), "one that is being taken out");
        let knot = [whole[0], (0x2020, 0x1010, 0x2020)];
        assert_eq!(walked(&ring(&knot)), (vec![0x10, 0x20], false), "one that leads to itself");
    }
}
