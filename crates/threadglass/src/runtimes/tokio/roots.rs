//! Pointers that threads have: to a scheduler, to a task that is being polled, to what leads there.
//!
//! A thread that runs tasks has the pointer to its scheduler on its stack, and in a variable of its own that lies
//! below its descriptor.

use super::vtables::Vtables;
use crate::memory::Slot;
use crate::proc::{MapEntry, map_at};
use crate::runtimes::tasks::ThreadPlace;
use crate::symbols::Objects;
use crate::target::Target;
use crate::{Lwp, RemoteAddr};
use std::collections::BTreeSet;

/// What is read of a stack from where it stands now.
const NEAR: u64 = 48 << 10;
/// What is read at the outer end of a stack, with the variables of the thread: who runs tasks is called there.
const TOP: u64 = 24 << 10;
/// What is read of all stacks.
const MAX_BYTES: u64 = 48 << 20;
/// Threads that are read at one time.
const BATCH: usize = 128;
/// What is read of the variables of all objects with tasks.
const MAX_VARIABLES: usize = 4 << 20;
/// Pointers that are kept of all threads.
const MAX_POINTERS: usize = 1 << 18;

/// The pointers of one thread, in order.
pub(super) struct ThreadPointers {
    pub(super) lwp: Lwp,
    pub(super) pointers: Vec<u64>,
}

impl ThreadPointers {
    pub(super) fn contains(&self, pointer: u64) -> bool {
        self.pointers.binary_search(&pointer).is_ok()
    }
}

/// The pointers to data that each of `threads` has.
pub(super) fn pointers_of(target: &dyn Target, threads: &[ThreadPlace]) -> Vec<ThreadPointers> {
    let maps = target.maps();
    let (mut found, mut left, mut count) = (Vec::new(), MAX_BYTES, 0);
    for part in threads.chunks(BATCH) {
        let mut areas: Vec<(Lwp, RemoteAddr, Vec<u8>)> = Vec::new();
        for thread in part {
            for (from, to) in areas_of(maps, thread) {
                let length = (to - from).min(left);
                left -= length;
                areas.push((thread.lwp, RemoteAddr(from), vec![0; usize::try_from(length).unwrap_or(0)]));
            }
        }
        let mut slots: Vec<_> = areas.iter_mut().map(|(_, from, bytes)| Slot::new(*from, bytes)).collect();
        target.read_many(&mut slots);
        let lengths: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
        for ((lwp, _, bytes), length) in areas.iter().zip(lengths) {
            let words = bytes[..length].as_chunks().0.iter().copied().map(u64::from_le_bytes);
            let is_data = |word: &u64| word.is_multiple_of(8) && is_data(maps, *word);
            let pointers: BTreeSet<u64> = words.filter(is_data).collect();
            count += pointers.len();
            found.push(ThreadPointers { lwp: *lwp, pointers: pointers.into_iter().collect() });
        }
        if left == 0 || count >= MAX_POINTERS || target.limits().is_over() {
            break;
        }
    }
    found
}

/// The pointers to data in variables of the objects that have tasks: a runtime that no thread is in is mostly kept in one.
pub(super) fn pointers_in_variables(objects: &Objects<'_>, vtables: &Vtables) -> BTreeSet<u64> {
    let target = objects.target;
    let maps = target.maps();
    let mut found = BTreeSet::new();
    let mut left = MAX_VARIABLES;
    for object in objects.all().iter().filter(|object| vtables.is_in(object.module)) {
        let is_own = |map: &&MapEntry| map.read && map.write && object.module.contains(map.start);
        for map in maps.iter().filter(is_own) {
            let length = usize::try_from(map.end.0.saturating_sub(map.start.0)).unwrap_or(0).min(left);
            left -= length;
            let Ok(bytes) = target.read_up_to(map.start, length) else { continue };
            let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
            // What is shared begins on such an address; variables of the object itself are no runtime.
            let is_shared = |word: &u64| word.is_multiple_of(16) && is_data(maps, *word);
            let outside = words.filter(is_shared).filter(|word| !object.module.contains(RemoteAddr(*word)));
            found.extend(outside.take(MAX_POINTERS.saturating_sub(found.len())));
        }
    }
    found
}

/// Whether data may be at `addr` that the program itself has made.
pub(super) fn is_data(maps: &[MapEntry], addr: u64) -> bool {
    addr > 0xffff && map_at(maps, RemoteAddr(addr)).is_some_and(|map| map.write && map.read)
}

/// The parts of memory that are read of a thread.
fn areas_of(maps: &[MapEntry], thread: &ThreadPlace) -> Vec<(u64, u64)> {
    let mut areas: Vec<(u64, u64)> = Vec::new();
    let descriptor = thread.descriptor.map(|descriptor| descriptor.0 & !7);
    if let Some(sp) = thread.sp.map(|sp| sp.0 & !7)
        && let Some(map) = map_at(maps, RemoteAddr(sp))
    {
        areas.push((sp, map.end.0.min(sp.saturating_add(NEAR))));
        // Without a descriptor in it, this is the stack of the main thread.
        if descriptor.is_none_or(|descriptor| !map.contains(RemoteAddr(descriptor))) {
            areas.push((map.end.0.saturating_sub(TOP).max(sp), map.end.0));
        }
    }
    if let Some(descriptor) = descriptor
        && let Some(map) = map_at(maps, RemoteAddr(descriptor))
    {
        areas.push((map.start.0.max(descriptor.saturating_sub(TOP)), descriptor));
    }
    areas.retain(|(from, to)| from < to);
    areas
}
