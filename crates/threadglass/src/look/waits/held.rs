//! Locks that nobody waits for, found where their holders leave traces.

use crate::memory::{Slot, read_each};
use crate::proc::map_at;
use crate::runtimes::{Class, Context, held_by_content};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of each stack that are searched, and of all of them: with many threads, less of each.
const STACK: usize = 16 << 10;
const ALL_STACKS: usize = 32 << 20;
/// Stacks searched at a time.
const BATCH: usize = 64;
/// Bytes of a mutex.
const MUTEX: usize = 40;
/// Addresses that are looked at, of all stacks together.
const MAX_ADDRESSES: usize = 1 << 18;

/// Held mutexes to which a word on the stack of a thread at rest leads. What says of itself that it is held
/// by a living thread, in all of its fields, is taken for one.
pub(super) fn on_stacks(target: &dyn Target, context: &Context<'_>, facts: &BTreeMap<Lwp, LwpFacts>) -> Vec<Class> {
    let maps = target.maps();
    let is_data = |addr: u64| map_at(maps, RemoteAddr(addr)).is_some_and(|map| map.write && map.read);
    let pointers: Vec<RemoteAddr> =
        facts.values().filter_map(|facts| Some(facts.syscall.as_ref()?.registers()?.0)).collect();
    let size = (ALL_STACKS / pointers.len().max(1)).clamp(1 << 10, STACK) & !7;
    let mut addresses: BTreeSet<u64> = BTreeSet::new();
    // Always the same memory: much that is taken and given back costs more than to read the stacks.
    let mut stacks = vec![0; BATCH.min(pointers.len()) * size];
    for part in pointers.chunks(BATCH) {
        let mut slots: Vec<_> =
            part.iter().zip(stacks.chunks_mut(size)).map(|(sp, stack)| Slot::new(*sp, stack)).collect();
        target.read_many(&mut slots);
        let lengths: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
        for (stack, length) in stacks.chunks(size).zip(lengths) {
            let words = stack[..length.min(size)].as_chunks().0.iter().copied().map(u64::from_le_bytes);
            addresses.extend(words.filter(|word| word % 8 == 0 && is_data(*word)));
        }
        if addresses.len() > MAX_ADDRESSES {
            break;
        }
    }
    let addresses: Vec<RemoteAddr> = addresses.into_iter().take(MAX_ADDRESSES).map(RemoteAddr).collect();
    let mut found = Vec::new();
    for part in addresses.chunks(1024) {
        let contents = read_each(target, part.iter().map(|addr| (*addr, MUTEX)));
        let whole = part.iter().zip(&contents).filter(|(_, bytes)| bytes.len() == MUTEX);
        found.extend(whole.filter_map(|(addr, bytes)| held_by_content(*addr, bytes, &|tid| context.has_thread(tid))));
    }
    found
}
