//! The mutexes that threads own. musl keeps all that record their owner in a list of the thread, robust or not.

use super::layout::Layout;
use crate::model::{Evidence, Family, SyncKind};
use crate::runtimes::Class;
use crate::target::Target;
use crate::{PthreadId, RemoteAddr};
use std::collections::HashSet;

/// Mutexes that one thread owns.
const MAX_OWNED: usize = 2048;
/// Mutexes that all threads own.
const MAX_ALL: usize = 1 << 17;
/// Where a mutex has the pointer to the next one.
const NEXT: u64 = 32;

pub(super) fn lists(target: &dyn Target, layout: &Layout, ids: impl Iterator<Item = PthreadId>) -> Vec<Class> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for id in ids {
        let head = id.0.offset(layout.robust_list());
        let mut next = target.read_addr(head);
        for _ in 0..MAX_OWNED {
            // A mutex is on the list of one thread, and on that once.
            let Ok(entry) = next else { break };
            if entry == head || entry.is_null() || !seen.insert(entry) {
                break;
            }
            let Some(address) = entry.checked_sub(NEXT) else { break };
            if found.len() >= MAX_ALL || target.limits().is_over() {
                let why = format!("there are more than {MAX_ALL}, or it took too long to follow their lists");
                target.limits().leave_out("some mutexes that threads hold", why);
                return found;
            }
            found.push(Class::new(SyncKind::Mutex, Family::Musl, address, Evidence::Recorded));
            next = target.read_addr(RemoteAddr(entry.0));
        }
    }
    found
}
