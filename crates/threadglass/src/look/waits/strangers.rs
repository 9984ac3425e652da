//! Threads of other processes that waits lead to, with their stacks.

use super::calls;
use super::knot::Spot;
use crate::Pid;
use crate::host;
use crate::look::{Look, Names, Scope, Stacks};
use crate::model::Stranger;
use crate::target::Target;
use std::collections::BTreeSet;

/// Processes that are looked into, and threads of each.
const PROCESSES: usize = 8;
const THREADS: usize = 4;

/// The threads at `spots`, as far as they can be looked at and the look has time.
pub(super) fn strangers(target: &dyn Target, spots: &BTreeSet<Spot>) -> Vec<Stranger> {
    let pids: BTreeSet<Pid> = spots.iter().map(|spot| spot.pid).collect();
    let mut found = Vec::new();
    for pid in pids.into_iter().take(PROCESSES) {
        if target.limits().is_over() {
            break;
        }
        found.extend(of_process(target, pid, spots).into_iter().flatten());
    }
    found
}

fn of_process(target: &dyn Target, pid: Pid, spots: &BTreeSet<Spot>) -> Option<Vec<Stranger>> {
    let other = target.other(pid).filter(|other| other.denial().is_none())?;
    let look = Look::new(&*other);
    let mut snapshot = look.take(Scope::Waited, Names::Findings).ok()?;
    snapshot.threads.retain(|thread| thread.lwp.is_some_and(|lwp| spots.contains(&Spot { pid, lwp })));
    snapshot.threads.truncate(THREADS);
    calls::add_descriptors(&*other, &mut snapshot.threads);
    let mut stacks = Stacks::new(&look).without_libc_lines();
    stacks.read(&snapshot.threads, &mut snapshot.gaps);
    stacks.finish(&mut snapshot);
    let process = host::name_of(pid);
    Some(snapshot.threads.into_iter().map(|thread| Stranger { pid, process: process.clone(), thread }).collect())
}
