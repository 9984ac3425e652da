//! Queues in which goroutines wait: of channels, of semaphores, of condition variables.

use super::offsets::Layout;
use crate::RemoteAddr;
use crate::by_number::ByAddress;
use crate::memory::{Memory, u64_at};
use crate::runtimes::pages::Pages;
use crate::runtimes::records;
use std::collections::HashSet;

/// Roots of the table of semaphores, and bytes of each.
const ROOTS: usize = 251;
const ROOT_SIZE: usize = 64;
/// In a root: the tree of semaphores that are waited for.
const TREE: usize = 8;
/// Entries of queues that are read. More than this no machine has memory for.
const MAX_ENTRIES: usize = 4 << 20;
/// Entries of one list, which are read one by one.
const MAX_LIST: usize = 256 << 10;
/// Channels of one select.
const MAX_CASES: usize = 4096;

/// A goroutine's entry in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) goroutine: u64,
    next: u64,
    prev: u64,
    pub(super) elem: u64,
    wait_link: u64,
    pub(super) channel: u64,
}

impl Entry {
    fn decode(address: u64, bytes: &[u8], layout: &Layout) -> Option<Self> {
        let at = &layout.sudog;
        let pointer = |from: usize| match u64_at(bytes, from)? {
            0 if at.is_twice => u64_at(bytes, from + 8),
            pointer => Some(pointer),
        };
        Some(Self {
            address,
            goroutine: u64_at(bytes, 0)?,
            next: u64_at(bytes, at.next)?,
            prev: u64_at(bytes, at.prev)?,
            elem: pointer(at.elem)?,
            wait_link: u64_at(bytes, at.wait_link)?,
            channel: pointer(at.channel)?,
        })
    }
}

/// Entries of long lists that are read one by one.
struct Chain<'m> {
    memory: &'m dyn Memory,
    layout: &'m Layout,
    pages: Pages,
}

impl<'m> Chain<'m> {
    fn new(memory: &'m dyn Memory, layout: &'m Layout) -> Self {
        Self { memory, layout, pages: Pages::new(layout.sudog.size) }
    }

    /// The entries at `addresses`; `None` where they cannot be read.
    fn entries(&mut self, addresses: &[u64]) -> Vec<Option<Entry>> {
        if addresses.len() >= Pages::MANY {
            return entries(self.memory, self.layout, addresses);
        }
        self.pages.read(self.memory, addresses.iter().copied());
        addresses.iter().map(|address| Entry::decode(*address, self.pages.bytes(*address), self.layout)).collect()
    }
}

/// The entries at `addresses`; `None` where they cannot be read.
fn entries(memory: &dyn Memory, layout: &Layout, addresses: &[u64]) -> Vec<Option<Entry>> {
    let mut order: Vec<u32> = (0..addresses.len() as u32).collect();
    order.sort_unstable_by_key(|index| addresses[*index as usize]);
    let sorted: Vec<u64> = order.iter().map(|index| addresses[*index as usize]).collect();
    let mut found = vec![None; addresses.len()];
    records::read(
        memory,
        &sorted,
        |_| layout.sudog.size,
        |index, bytes| {
            found[order[index] as usize] = Entry::decode(sorted[index], bytes, layout);
        },
    );
    found
}

/// What goroutines wait for by their own lists: for pairs of goroutine and first entry, all entries with the number of
/// the pair, in the order of the pairs.
pub(super) fn of_goroutines(memory: &dyn Memory, layout: &Layout, waiting: &[(u64, u64)]) -> Vec<(usize, Entry)> {
    let mut found: Vec<(usize, Entry)> = Vec::with_capacity(waiting.len());
    let mut left: Vec<(usize, u64)> = waiting.iter().map(|(_, first)| *first).enumerate().collect();
    for _ in 0..MAX_CASES {
        let at: Vec<u64> = left.iter().map(|(_, at)| *at).collect();
        let read = entries(memory, layout, &at);
        let begin = found.len();
        let own = left.iter().zip(read).filter_map(|((number, _), entry)| Some((*number, entry?)));
        // An entry of another goroutine has been given back and used again meanwhile.
        found.extend(own.filter(|(number, entry)| entry.goroutine == waiting[*number].0));
        let next = found[begin..].iter().filter(|(_, entry)| entry.wait_link != 0);
        left = next.map(|(number, entry)| (*number, entry.wait_link)).collect();
        if left.is_empty() || found.len() > MAX_ENTRIES {
            break;
        }
    }
    found.sort_by_key(|(number, _)| *number);
    found
}

/// The semaphore that each goroutine waits for that waits for one.
pub(super) fn semaphores(memory: &dyn Memory, layout: &Layout, table: RemoteAddr) -> ByAddress<u64> {
    let Ok(roots) = memory.read_vec(table, ROOTS * ROOT_SIZE) else { return ByAddress::default() };
    let mut left: Vec<u64> = roots.chunks_exact(ROOT_SIZE).filter_map(|root| u64_at(root, TREE)).collect();
    let mut chain = Chain::new(memory, layout);
    let mut seen = ByAddress::default();
    let mut found = ByAddress::default();
    let mut rounds = 0;
    while !left.is_empty() && seen.len() < MAX_ENTRIES && rounds < MAX_LIST {
        rounds += 1;
        left.retain(|address| *address != 0 && seen.insert(*address, ()).is_none());
        let read = chain.entries(&left);
        left.clear();
        for entry in read.into_iter().flatten() {
            // The tree's two branches, and those that wait for the same semaphore.
            left.extend([entry.next, entry.prev, entry.wait_link]);
            if entry.goroutine != 0 && entry.elem != 0 {
                found.insert(entry.goroutine, entry.elem);
            }
        }
    }
    found
}

/// The goroutines in the list that begins with the entry `first`.
pub(super) fn list(memory: &dyn Memory, layout: &Layout, first: u64) -> HashSet<u64> {
    let (mut at, mut seen, mut found) = (first, HashSet::new(), HashSet::new());
    let mut chain = Chain::new(memory, layout);
    while at != 0 && seen.insert(at) && seen.len() < MAX_LIST {
        let Some(entry) = chain.entries(&[at]).pop().flatten() else { break };
        found.insert(entry.goroutine);
        at = entry.next;
    }
    found
}

/// Whether `entry` is in the queue of `channel` that begins at `queue`: it leads back to its first entry.
pub(super) fn is_in(memory: &dyn Memory, layout: &Layout, entry: &Entry, queue: usize) -> Option<bool> {
    const FAR: usize = 64;
    let first = memory.read_u64(RemoteAddr(entry.channel).offset(queue as u64)).ok()?;
    let mut entry = *entry;
    for _ in 0..FAR {
        if entry.prev == 0 {
            return Some(entry.address == first);
        }
        entry = entries(memory, layout, &[entry.prev]).pop()??;
    }
    None
}
