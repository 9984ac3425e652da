//! Locks that nobody waits for, found where their holders leave traces.

use super::classify::Class;
use super::guess::held_mutex;
use super::survey::{Survey, Wait};
use crate::memory::Slot;
use crate::model::{Evidence, Family, SyncKind};
use crate::proc::MapEntry;
use crate::runtimes::glibc::Layout;
use crate::target::{LwpFacts, Target};
use crate::{Lwp, PthreadId, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Mutexes on one thread's robust list. The kernel itself gives up after as many.
const MAX_ROBUST: usize = 2048;
/// Mutexes on the robust lists of all threads together.
const MAX_ALL_ROBUST: usize = 1 << 17;
/// Bytes of each stack that are searched, and of all of them: with many threads, less of each.
const STACK: usize = 16 << 10;
const ALL_STACKS: usize = 32 << 20;
/// Stacks searched at a time.
const BATCH: usize = 256;
/// Addresses that are looked at, of all stacks together.
const MAX_ADDRESSES: usize = 1 << 18;

/// The mutexes that waiters on condition variables gave up and will take again.
pub(super) fn given_up(waits: &[Wait]) -> Vec<Class> {
    waits.iter().filter_map(|wait| wait.mutex).map(|address| mutex(address, Evidence::Derived)).collect()
}

fn mutex(address: RemoteAddr, evidence: Evidence) -> Class {
    Class { kind: SyncKind::Mutex, family: Family::Pthread, address, side: None, evidence }
}

/// The robust mutexes that threads have registered with the kernel as theirs.
pub(super) fn robust_lists(
    target: &dyn Target,
    layout: &Layout,
    facts: &BTreeMap<Lwp, LwpFacts>,
    ids: &HashMap<Lwp, Option<PthreadId>>,
) -> Vec<Class> {
    let heads: Vec<RemoteAddr> = facts
        .values()
        .filter_map(|facts| {
            let id = ids.get(&facts.lwp).copied().flatten();
            facts.robust_head.or_else(|| Some(id?.0.offset(layout.robust_head?)))
        })
        .collect();
    let mut firsts = vec![[0; 24]; heads.len()];
    let mut slots: Vec<_> =
        heads.iter().zip(&mut firsts).map(|(head, bytes)| Slot::new(*head, &mut bytes[..])).collect();
    target.read_many(&mut slots);
    let whole: Vec<bool> = slots.iter().map(Slot::is_whole).collect();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for ((head, bytes), _) in heads.iter().zip(&firsts).zip(whole).filter(|(_, whole)| *whole) {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        // Where the lock word lies, as seen from a list entry; glibc's has been the same for ever.
        if word(8) as i64 != -32 {
            continue;
        }
        let mut next = word(0) & !1;
        for _ in 0..MAX_ROBUST {
            if next == head.0 || next == 0 {
                break;
            }
            let Some(address) = RemoteAddr(next).checked_sub(32) else { break };
            // A mutex is on the list of one thread, and on that once.
            if !seen.insert(next) {
                break;
            }
            if found.len() >= MAX_ALL_ROBUST || target.limits().is_over() {
                let why = format!("there are more than {MAX_ALL_ROBUST}, or it took too long to follow their lists");
                target.limits().leave_out("some robust mutexes that threads hold", why);
                return found;
            }
            found.push(mutex(address, Evidence::Recorded));
            match target.read_u64(RemoteAddr(next)) {
                Ok(after) => next = after & !1,
                Err(_) => break,
            }
        }
    }
    found
}

/// Held mutexes to which a word on the stack of a thread at rest leads. What says of itself that it is held
/// by a living thread, in all of its fields, is taken for one.
pub(super) fn on_stacks(target: &dyn Target, survey: &Survey<'_>, facts: &BTreeMap<Lwp, LwpFacts>) -> Vec<Class> {
    let data: Vec<&MapEntry> = target.maps().iter().filter(|map| map.write && map.read).collect();
    let is_data = |addr: u64| {
        let behind = data.partition_point(|map| map.start.0 <= addr);
        behind.checked_sub(1).is_some_and(|index| addr < data[index].end.0)
    };
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
            let words =
                slot.buf[..got].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
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
        let held = slots
            .iter()
            .filter(|slot| slot.is_whole() && held_mutex(slot.buf, &|tid| survey.has_thread(tid)).is_some());
        found.extend(held.map(|slot| mutex(slot.addr, Evidence::Inferred)));
    }
    found
}
