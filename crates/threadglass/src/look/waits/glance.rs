//! A short look at a process that others wait for, or that is one of many: one look, without stacks, samples or times.

use super::calls;
use super::groups::groups;
use super::outside::Follower;
use super::verdict::verdict;
use crate::Pid;
use crate::host::Host;
use crate::look::{Look, Names, Scope};
use crate::model::Snapshot;
use crate::target::Target;
use std::collections::HashMap;
use std::rc::Rc;

/// What one look at `target` says, with the verdict; waits of processes in `from` lead here. `None` if it has ended or may not
/// be looked into.
pub(crate) fn glance(target: &dyn Target, host: &Rc<Host>, from: &[Pid]) -> Option<Snapshot> {
    if target.denial().is_some() {
        return None;
    }
    let _look = target.limits().begin();
    let mut snapshot = Look::new(target).take(Scope::Waited, Names::Findings).ok()?;
    calls::add_descriptors(target, &mut snapshot.threads);
    Follower::new(target, host, from).add_to(&mut snapshot);
    snapshot.groups = groups(&snapshot, &HashMap::new());
    snapshot.verdict = Some(verdict(&snapshot));
    Some(snapshot)
}
