//! A short look at one of many processes: one look, without stacks, samples or times.

use super::calls;
use super::groups::groups;
use super::verdict::verdict;
use crate::look::{Look, Names, Scope};
use crate::model::Snapshot;
use crate::target::Target;
use std::collections::HashMap;

/// What one look at `target` says of its threads and locks, with the verdict. `None` if it has ended or may not be looked into.
pub(crate) fn glance(target: &dyn Target) -> Option<Snapshot> {
    if target.denial().is_some() {
        return None;
    }
    let _look = target.limits().begin();
    let mut snapshot = Look::new(target).take(Scope::Waited, Names::Findings).ok()?;
    calls::add_descriptors(target, &mut snapshot.threads);
    snapshot.groups = groups(&snapshot, &HashMap::new());
    snapshot.verdict = Some(verdict(&snapshot));
    Some(snapshot)
}
