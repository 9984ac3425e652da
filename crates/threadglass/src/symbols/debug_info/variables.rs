//! Variables at fixed addresses.

use super::{DebugInfo, EntryAt, Query};
use crate::RemoteAddr;
use crate::model::Evidence;
use crate::symbols::LockVariable;

/// Variables that begin before an address and are tried: some have no size.
const MAX_TRIES: usize = 8;
/// What one takes in the tree that they are kept in, about.
const VARIABLE: usize = 32;
/// What a lock takes in a list of them, without its name.
const LOCK: usize = 128;
/// Locks in all variables of one object. A table of locks may be large, but not one of these tables in every entry.
const MAX_LOCKS: usize = 1 << 18;

impl DebugInfo {
    /// The variable at the link-time address `addr`, with the member there: `registry.shards[3].mu`.
    pub(in crate::symbols) fn variable_at(&mut self, addr: u64) -> Option<String> {
        let mut query = self.query();
        let (variable, start, of) = query.find(addr)?;
        let name = query.qualified_name(variable)?;
        let (path, rest) = query.path_at(of, addr - start);
        Some(if rest == 0 { format!("{name}{path}") } else { format!("{name}{path}+{rest:#x}") })
    }

    /// Every lock in a variable at a fixed address, at its link-time address; `None` where there is no variable at all.
    pub(in crate::symbols) fn lock_variables(&mut self) -> Option<Vec<LockVariable>> {
        let mut query = self.query();
        while query.scan_next() {}
        let variables: Vec<(u64, EntryAt)> = query.decoded.variables.iter().map(|(addr, at)| (*addr, *at)).collect();
        let mut found = Vec::new();
        let mut count = 0;
        for (addr, at) in &variables {
            if query.is_exhausted() {
                break;
            }
            let Some(of) = query.type_of(*at) else { continue };
            let locks = query.locks_in(of);
            if !locks.is_empty()
                && let Some(name) = query.qualified_name(*at)
            {
                count += locks.len();
                let bytes = locks.iter().map(|lock| LOCK + name.len() + lock.path.len()).sum();
                if count > MAX_LOCKS || !query.grow(bytes) {
                    query.leave_out("locks in variables", "there are too many of them");
                    break;
                }
                found.extend(locks.iter().filter_map(|lock| {
                    Some(LockVariable {
                        address: RemoteAddr(addr.checked_add(lock.offset)?),
                        kind: lock.kind,
                        family: lock.family,
                        name: format!("{name}{}", lock.path),
                        evidence: if lock.in_union { Evidence::Inferred } else { Evidence::Derived },
                    })
                }));
            }
        }
        (!variables.is_empty()).then_some(found)
    }
}

impl Query<'_> {
    /// The variable that holds `addr`: its entry, where it begins, and its type. Units are scanned until it
    /// is found: a program's own come before those of its libraries.
    fn find(&mut self, addr: u64) -> Option<(EntryAt, u64, EntryAt)> {
        loop {
            let before: Vec<(u64, EntryAt)> =
                self.decoded.variables.range(..=addr).rev().take(MAX_TRIES).map(|(start, at)| (*start, *at)).collect();
            for (start, at) in before {
                let Some(of) = self.type_of(at) else { continue };
                if self.size_of(of).is_some_and(|size| addr - start < size) {
                    return Some((at, start, of));
                }
            }
            let scanned = self.decoded.variables.len();
            while self.decoded.variables.len() == scanned {
                if !self.scan_next() {
                    return None;
                }
            }
        }
    }

    /// The variable that begins at `addr`.
    pub(super) fn variable_beginning_at(&mut self, addr: u64) -> Option<EntryAt> {
        while !self.decoded.variables.contains_key(&addr) && self.scan_next() {}
        self.decoded.variables.get(&addr).copied()
    }

    /// Adds the variables of the next unit; `false` when there is none.
    fn scan_next(&mut self) -> bool {
        let unit = self.decoded.scanned;
        if unit >= self.source.units.len() || self.is_exhausted() {
            return false;
        }
        self.decoded.scanned += 1;
        let start = self.source.units[unit].start;
        if let Some(index) = self.index(unit) {
            if index.variables.is_empty() {
                // Most units of a large program are not asked for again.
                self.forget_index(unit);
            }
            for (addr, offset) in &index.variables {
                if let Some(at) = start.checked_add(*offset)
                    && self.grow(VARIABLE)
                {
                    self.decoded.variables.entry(*addr).or_insert(at);
                }
            }
        }
        true
    }
}
