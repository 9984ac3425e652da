//! Locks that nobody waits for, found where their holders leave traces.

use crate::memory::Slot;
use crate::proc::map_at;
use crate::runtimes::{Class, Context, held_by_content};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of each stack that are searched, and of all of them: with many threads, less of each.
const STACK: usize = 16 << 10;
const ALL_STACKS: usize = 32 << 20;
/// Stacks searched at a time.
const BATCH: usize = 256;
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
    for part in pointers.chunks(BATCH) {
        let mut bytes = vec![0; part.len() * size];
        let mut slots: Vec<_> =
            part.iter().zip(bytes.chunks_exact_mut(size)).map(|(sp, bytes)| Slot::new(*sp, bytes)).collect();
        target.read_many(&mut slots);
        for slot in &slots {
            let got = slot.outcome.unwrap_or(0).min(size);
            let words = slot.buf[..got].as_chunks().0.iter().copied().map(u64::from_le_bytes);
            addresses.extend(words.filter(|word| word % 8 == 0 && is_data(*word)));
        }
        if addresses.len() > MAX_ADDRESSES {
            break;
        }
    }
    let addresses: Vec<RemoteAddr> = addresses.into_iter().take(MAX_ADDRESSES).map(RemoteAddr).collect();
    let mut found = Vec::new();
    for part in addresses.chunks(1024) {
        let mut bytes = vec![[0; 40]; part.len()];
        let mut slots: Vec<_> =
            part.iter().zip(&mut bytes).map(|(addr, bytes)| Slot::new(*addr, &mut bytes[..])).collect();
        target.read_many(&mut slots);
        let whole = slots.iter().filter(|slot| slot.is_whole());
        found.extend(whole.filter_map(|slot| held_by_content(slot.addr, slot.buf, &|tid| context.has_thread(tid))));
    }
    found
}
