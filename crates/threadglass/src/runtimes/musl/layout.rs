//! Where musl keeps what in a thread's descriptor, and how the first descriptor of a target is found.

use crate::memory::Memory;
use crate::proc::{MapEntry, map_at};
use crate::target::{Anchor, LwpFacts, Target};
use crate::{InnerTid, RemoteAddr};

/// Where the thread's id is: since 1.2.0, and from 1.1.22 to 1.1.24.
const TIDS: [u64; 2] = [48, 56];

/// The ring of all threads: the one before, and the one after.
const PREV: u64 = 16;
const NEXT: u64 = 24;

/// Bytes of one stack, from the stack pointer on, that are searched for the descriptor above it.
const STACK: usize = 1 << 20;
/// Stacks that are searched.
const STACKS: usize = 8;
/// Bytes of other memory that are searched: where main's descriptor is, if no other thread leads to it.
const DATA: usize = 16 << 20;
/// Bytes of one mapping that are searched.
const MAPPING: u64 = 4 << 20;

/// Offsets inside `struct pthread`. All of its fields that differ between versions follow the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Kernel thread id.
    pub tid: u64,
}

impl Layout {
    /// The previous thread of the ring.
    pub(super) fn prev(&self) -> u64 {
        PREV
    }

    /// The next thread of the ring.
    pub(super) fn next(&self) -> u64 {
        NEXT
    }

    /// Whether it can be joined, and the word that joiners wait on.
    pub(super) fn detach_state(&self) -> u64 {
        self.tid + 8
    }

    /// One past the highest address of the stack; its size and the guard's size follow.
    pub(super) fn stack(&self) -> u64 {
        self.tid + 40
    }

    /// The list of mutexes that the thread owns.
    pub(super) fn robust_list(&self) -> u64 {
        self.tid + 88
    }

    /// Bytes of a descriptor that hold everything of use.
    pub(super) fn span(&self) -> usize {
        self.robust_list() as usize + 24
    }

    /// Bytes at the top of a thread's stack from its start routine on: what the thread was given by who made it.
    pub(super) fn start_arguments(&self) -> u64 {
        if self.tid == TIDS[0] { 32 } else { 40 }
    }

    /// Learns the layout from the target, of whose threads the kernel told `facts`: with the descriptor that it was found
    /// in. `None` where there is no musl.
    pub(crate) fn discover(target: &dyn Target, facts: &[LwpFacts]) -> Option<(Self, RemoteAddr)> {
        let leader = target.pid().leader();
        by_anchors(target, facts).or_else(|| by_stacks(target, facts)).or_else(|| {
            let inner = facts.iter().find(|facts| facts.lwp == leader).map(|facts| facts.inner)?;
            in_data(target, inner)
        })
    }

    /// Whether the descriptor of the thread `inner` is at `base`.
    fn fits(&self, memory: &dyn Memory, base: RemoteAddr, inner: InnerTid) -> bool {
        let word = |at: u64| memory.read_u64(RemoteAddr(base.0.checked_add(at)?)).ok();
        let link = |at: u64, back: u64| {
            let other = word(at).filter(|other| *other != 0 && other % 8 == 0)?;
            memory.read_u64(RemoteAddr(other.checked_add(back)?)).ok()
        };
        let robust = || word(self.robust_list()).filter(|head| head % 8 == 0).unwrap_or(0);
        let state = || memory.read_u32(base.offset(self.detach_state())).ok();
        word(0) == Some(base.0)
            && memory.read_u32(base.offset(self.tid)).is_ok_and(|tid| tid as i32 == inner.0)
            && link(NEXT, PREV) == Some(base.0)
            && link(PREV, NEXT) == Some(base.0)
            && state().is_some_and(|state| state <= 3)
            && memory.read_u64(RemoteAddr(robust())).is_ok()
    }
}

/// The layout of the descriptor at `base`, if it is that of the thread `inner`.
fn at(memory: &dyn Memory, base: RemoteAddr, inner: InnerTid) -> Option<(Layout, RemoteAddr)> {
    let layouts = TIDS.into_iter().map(|tid| Layout { tid });
    layouts.into_iter().find(|layout| layout.fits(memory, base, inner)).map(|layout| (layout, base))
}

/// By what threads registered with the kernel, or a core has of them.
fn by_anchors(target: &dyn Target, facts: &[LwpFacts]) -> Option<(Layout, RemoteAddr)> {
    facts.iter().filter_map(LwpFacts::hint).take(64).find_map(|hint| match hint.anchor {
        Anchor::Descriptor(base) => at(target, base, hint.inner),
        Anchor::RobustHead(_) => TIDS.into_iter().find_map(|tid| {
            let layout = Layout { tid };
            let base = hint.anchor.base(Some(layout.robust_list()))?;
            layout.fits(target, base, hint.inner).then_some((layout, base))
        }),
    })
}

/// A thread's descriptor lies above its stack, in the same mapping.
fn by_stacks(target: &dyn Target, facts: &[LwpFacts]) -> Option<(Layout, RemoteAddr)> {
    let leader = target.pid().leader();
    let others = facts.iter().filter(|facts| facts.lwp != leader);
    let stacks = others.filter_map(|facts| Some((facts.inner, facts.syscall.as_ref()?.registers()?.0)));
    stacks.take(STACKS).find_map(|(inner, sp)| {
        let map = map_at(target.maps(), sp)?;
        let size = usize::try_from(map.end.0 - sp.0).ok()?.min(STACK);
        search(target, RemoteAddr(sp.0 & !7), size, inner)
    })
}

/// Main's descriptor is a variable of the library, or in memory that was mapped for it.
fn in_data(target: &dyn Target, inner: InnerTid) -> Option<(Layout, RemoteAddr)> {
    let is_data = |map: &&MapEntry| map.write && map.read && !map.shared && map.end.0 - map.start.0 <= MAPPING;
    let mut left = DATA;
    target.maps().iter().filter(is_data).find_map(|map| {
        let size = usize::try_from(map.end.0 - map.start.0).ok()?;
        left = left.checked_sub(size)?;
        search(target, map.start, size, inner)
    })
}

/// Looks through memory for the descriptor of `inner`.
fn search(target: &dyn Target, start: RemoteAddr, size: usize, inner: InnerTid) -> Option<(Layout, RemoteAddr)> {
    if target.limits().is_over() {
        return None;
    }
    let bytes = target.read_up_to(start, size).ok()?;
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    let places = words.zip((start.0..).step_by(8)).filter(|(word, place)| word == place);
    places.into_iter().find_map(|(_, place)| at(target, RemoteAddr(place), inner))
}
