//! A look with everything that a person wants to see of what is wrong: stacks, names, durations.

use super::findings::finding;
use super::look::object;
use super::names::LockNamer;
use super::owners::Owners;
use super::survey::read_objects;
use super::words::owner_died;
use crate::look::{Look, Names, Scope, Stacks};
use crate::model::{Certainty, Finding, FindingKind, Member, Snapshot, SyncKind, SyncObject, SyncState};
use crate::runtimes::Context;
use crate::target::{Target, TargetError};
use crate::{Lwp, RemoteAddr};
use std::collections::BTreeSet;

/// Threads whose stacks and durations are read. More nobody reads.
const SHOWN: usize = 64;

/// A look at what threads wait for, and for those that findings are about also their stacks and how long they have
/// waited.
pub fn explain(target: &dyn Target) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
    if let Some(denial) = target.denial() {
        return Err(TargetError::NoLocks { pid: target.pid(), why: denial.to_string() });
    }
    let look = Look::new(target);
    let mut snapshot = look.take(Scope::Waited, Names::Findings)?;
    if !snapshot.findings.iter().any(|finding| finding.kind.is_hang()) {
        add_dead_owners(&look, &mut snapshot);
        target.limits().report(&mut snapshot.gaps);
    }
    let shown: BTreeSet<Lwp> =
        snapshot.findings.iter().flat_map(|finding| finding.threads.iter().copied()).take(SHOWN).collect();
    let threads: Vec<_> =
        snapshot.threads.iter().filter(|thread| thread.lwp.is_some_and(|lwp| shown.contains(&lwp))).cloned().collect();
    if threads.is_empty() {
        return Ok(snapshot);
    }
    let mut stacks = Stacks::new(&look).without_libc_lines();
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

/// Robust mutexes whose owner died while nobody waits for them: known only where they are variables.
fn add_dead_owners(look: &Look<'_>, snapshot: &mut Snapshot) {
    let target = look.target;
    let known: BTreeSet<RemoteAddr> = snapshot.objects.iter().map(|object| object.address).collect();
    let owners = Owners::new(target, &snapshot.threads);
    let is_thread = |inner| snapshot.threads.iter().any(|thread| thread.inner_lwp == Some(inner));
    let variables = LockNamer::new(look).variables(&is_thread);
    let mutexes = variables.into_iter().filter(|(class, _)| class.kind == SyncKind::Mutex);
    let (mutexes, names): (Vec<_>, Vec<_>) = mutexes.filter(|(class, _)| !known.contains(&class.address)).unzip();
    let contents = read_objects(&Context::new(target, None, &[]), &mutexes);
    for ((class, name), content) in mutexes.into_iter().zip(names).zip(contents) {
        let Some(content) = content else { continue };
        if !content.is_plausible || !matches!(content.state, SyncState::OwnerDied | SyncState::Inconsistent) {
            continue;
        }
        let object = SyncObject { name: Some(name), ..object(target, &class, Some(&content), &owners) };
        let at = object.address;
        snapshot.findings.push(Finding {
            members: vec![Member { pid: target.pid(), lwp: None, object: Some(at) }],
            text: owner_died(&object, |lwp| format!("thread {lwp}")),
            ..finding(FindingKind::OwnerDied, Certainty::Certain, Vec::new(), vec![at], Vec::new())
        });
        snapshot.objects.push(object);
    }
}
