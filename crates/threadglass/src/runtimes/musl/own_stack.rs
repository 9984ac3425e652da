//! Objects whose waiters sleep on a word of their own stack: condition variables and barriers.
//!
//! The word does not lead to the object, but the object leads to the word. So each address on the waiter's stack is taken
//! for the object, and the one is right that leads back.

use crate::RemoteAddr;
use crate::memory::{Memory, read_arrays};
use std::collections::HashSet;

/// Waiters in the list of a condition variable that are followed.
const MAX_NODES: usize = 1 << 16;
/// Nodes that are followed for one address that may be a condition variable.
const MAX_TRIED: usize = 4096;

/// Bytes behind each address on a stack that may hold the address of the object.
const BEHIND: usize = 64;

/// Addresses that may be the object: the `words` of the waiter's stack, then what is behind them. A function that waits
/// need not keep its argument, but whoever called it had it from somewhere.
pub(super) fn candidates<'a>(memory: &'a dyn Memory, words: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    let is_pointer = |word: &u64| *word >= 4096 && word.is_multiple_of(8);
    let pointers = words.iter().copied().filter(is_pointer);
    let behind = std::iter::once_with(move || {
        let places: Vec<RemoteAddr> = words.iter().copied().filter(is_pointer).map(RemoteAddr).collect();
        let read = read_arrays::<BEHIND>(memory, &places).into_iter().flatten();
        let words = read.flat_map(|bytes| bytes.as_chunks().0.to_vec()).map(u64::from_le_bytes);
        words.filter(is_pointer).collect::<HashSet<u64>>()
    });
    pointers.chain(behind.flatten())
}

/// Where in a waiter's node its state and the word it waits on are.
const STATE: u64 = 16;
const BARRIER: u64 = 20;
/// Where a condition variable has the newest and the oldest node.
const HEAD: u64 = 8;
const TAIL: u64 = 40;
/// The state of a waiter that was signalled.
const SIGNALLED: u32 = 1;

/// Where a barrier has its instance, and the words of that on which threads wait.
const INSTANCE: u64 = 24;
const LAST: u64 = 4;
const FINISHED: u64 = 12;

/// The nodes from the newest to the oldest; `None` where they are not a list.
pub(super) fn nodes_of(memory: &dyn Memory, head: u64, tail: u64) -> Option<Vec<u64>> {
    nodes(memory, head, tail, MAX_NODES)
}

fn nodes(memory: &dyn Memory, head: u64, tail: u64, most: usize) -> Option<Vec<u64>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut node = head;
    while node != 0 {
        if found.len() >= most || !seen.insert(node) || !node.is_multiple_of(8) {
            return None;
        }
        found.push(node);
        node = memory.read_u64(RemoteAddr(node.checked_add(8)?)).ok()?;
    }
    (found.last().copied().unwrap_or(0) == tail).then_some(found)
}

/// A wait on a condition variable that processes do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CondNode(u64);

impl CondNode {
    /// The node in which the word is that a thread waits on.
    pub(super) fn around(word: RemoteAddr) -> Option<Self> {
        word.checked_sub(BARRIER).filter(|node| node.0 % 8 == 0).map(|node| Self(node.0))
    }

    /// Whether the waiter was signalled, and waits for the mutex or for those before it to have had it.
    pub(super) fn is_signalled(self, memory: &dyn Memory) -> bool {
        memory.read_u32(RemoteAddr(self.0).offset(STATE)) == Ok(SIGNALLED)
    }

    /// The condition variable among `candidates` in whose list the node is.
    pub(super) fn cond(self, memory: &dyn Memory, candidates: impl Iterator<Item = u64>) -> Option<RemoteAddr> {
        candidates.map(RemoteAddr).find(|cond| self.is_of(memory, *cond).unwrap_or(false))
    }

    fn is_of(self, memory: &dyn Memory, cond: RemoteAddr) -> Option<bool> {
        let word = |at: u64| memory.read_u64(RemoteAddr(cond.0.checked_add(at)?)).ok();
        // Of one that is shared there is another number in this place.
        let (shared, head, tail) = (word(0)?, word(HEAD)?, word(TAIL)?);
        if shared != 0 || head == 0 || tail == 0 {
            return None;
        }
        Some(nodes(memory, head, tail, MAX_TRIED)?.contains(&self.0))
    }
}

/// The barrier among `candidates` on whose instance a thread waits: on `word`, for the end of `value`.
pub(super) fn barrier(
    memory: &dyn Memory,
    word: RemoteAddr,
    value: u32,
    mut candidates: impl Iterator<Item = u64>,
) -> Option<RemoteAddr> {
    let instance = word.checked_sub(if value == 0 { LAST } else { FINISHED })?;
    let leads = |barrier: &u64| {
        let place = barrier.checked_add(INSTANCE).map(RemoteAddr);
        place.is_some_and(|place| memory.read_u64(place) == Ok(instance.0))
    };
    candidates.find(leads).map(RemoteAddr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_condition_variable_by_its_list() {
        let mut memory = Bytes::default();
        // The newest, at 0x1000, leads to the oldest, at 0x2000.
        memory.map(RemoteAddr(0x1000), words(&[0, 0x2000, 2 << 32, 0]));
        memory.map(RemoteAddr(0x2000), words(&[0x1000, 0, 2 << 32 | 1, 0]));
        memory.map(RemoteAddr(0x5000), words(&[0, 0x1000, 0, 0, 0, 0x2000]));
        memory.map(RemoteAddr(0x6000), words(&[0, 0x1000, 0, 0, 0, 0x1000]));
        let node = CondNode::around(RemoteAddr(0x2014)).unwrap();
        assert_eq!(
            node.cond(&memory, [7, 0x6000, 0x5000].into_iter()),
            Some(RemoteAddr(0x5000)),
            "a list with its end"
        );
        assert!(node.is_signalled(&memory) && !CondNode(0x1000).is_signalled(&memory));
        assert_eq!(CondNode(0x3000).cond(&memory, [0x5000].into_iter()), None);
        assert_eq!(nodes_of(&memory, 0, 0), Some(Vec::new()));
    }
}
