//! The lists of robust mutexes that threads have registered with the kernel.

use super::Layout;
use crate::memory::read_arrays;
use crate::model::{Evidence, Family, SyncKind};
use crate::runtimes::{Class, u64_at};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, PthreadId, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Mutexes on one thread's robust list. The kernel itself gives up after as many.
const MAX_ROBUST: usize = 2048;
/// Mutexes on the robust lists of all threads together.
const MAX_ALL_ROBUST: usize = 1 << 17;

/// The robust mutexes that threads have registered with the kernel as theirs.
pub(super) fn lists(
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
    let firsts = read_arrays::<24>(target, &heads);
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for (head, bytes) in heads.iter().zip(firsts) {
        let words = bytes.and_then(|bytes| u64_at(&bytes, 0).zip(u64_at(&bytes, 8)));
        let Some((first, to_lock)) = words else { continue };
        // Where the lock word lies, as seen from a list entry; glibc's has been the same for ever.
        if to_lock as i64 != -32 {
            continue;
        }
        let mut next = first & !1;
        for _ in 0..MAX_ROBUST {
            // A mutex is on the list of one thread, and on that once.
            if next == head.0 || next == 0 || !seen.insert(next) {
                break;
            }
            let Some(address) = RemoteAddr(next).checked_sub(32) else { break };
            if found.len() >= MAX_ALL_ROBUST || target.limits().is_over() {
                let why = format!("there are more than {MAX_ALL_ROBUST}, or it took too long to follow their lists");
                target.limits().leave_out("some robust mutexes that threads hold", why);
                return found;
            }
            found.push(Class::new(SyncKind::Mutex, Family::Pthread, address, Evidence::Recorded));
            let Ok(after) = target.read_u64(RemoteAddr(next)) else { break };
            next = after & !1;
        }
    }
    found
}
