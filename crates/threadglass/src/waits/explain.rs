//! A look with everything that a person wants to see of what is wrong: stacks, names, durations.

use super::assemble::{Scope, collect_scope};
use crate::Lwp;
use crate::model::Snapshot;
use crate::target::{Target, TargetError};
use crate::unwind::Stacks;
use std::collections::BTreeSet;

/// Threads whose stacks and durations are read. More nobody reads.
const SHOWN: usize = 64;

/// [`super::collect`], and for the threads that findings are about also their stacks and how long they have
/// waited.
pub fn explain(target: &dyn Target) -> Result<Snapshot, TargetError> {
    let mut snapshot = collect_scope(target, Scope::Waited)?;
    let shown: BTreeSet<Lwp> =
        snapshot.findings.iter().flat_map(|finding| finding.threads.iter().copied()).take(SHOWN).collect();
    let threads: Vec<_> =
        snapshot.threads.iter().filter(|thread| thread.lwp.is_some_and(|lwp| shown.contains(&lwp))).cloned().collect();
    if threads.is_empty() {
        return Ok(snapshot);
    }
    let mut stacks = Stacks::new(target);
    stacks.read(&threads, &mut snapshot.gaps).report(&mut snapshot.gaps);
    stacks.finish(&mut snapshot);
    let lwps: Vec<Lwp> = shown.into_iter().collect();
    for (lwp, idle) in lwps.iter().zip(target.idle_ms(&lwps)) {
        let thread = snapshot.threads.iter_mut().find(|thread| thread.lwp == Some(*lwp));
        if let Some(waits) = thread.and_then(|thread| thread.waits_for.as_mut()) {
            waits.since_ms = idle;
        }
    }
    Ok(snapshot)
}
