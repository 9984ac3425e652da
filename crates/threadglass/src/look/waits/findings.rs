//! What is wrong, as the graph shows it. [`super::words`] says it.

use super::graph::{Chain, Edge, Graph};
use super::unwoken::Sleepers;
use crate::model::{
    Certainty, Evidence, Finding, FindingKind, Holder, HolderStatus, Member, Side, Snapshot, SyncKind, SyncObject,
    SyncState,
};
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{HashMap, HashSet};

/// All findings about `objects`, the worst first, without words. `sleepers` are the target's threads.
pub(super) fn find(objects: &[SyncObject], sleepers: &Sleepers<'_>) -> Vec<Finding> {
    let graph = Graph::new(objects);
    let mut findings: Vec<Finding> = graph.circles().iter().map(|circle| of_circle(circle, objects, &graph)).collect();
    findings.extend(objects.iter().filter_map(|object| of_owner(object, &graph)));
    findings.extend(sleepers.find(objects, &graph));
    if !findings.iter().any(|finding| finding.kind.is_hang() && finding.certainty >= Certainty::Likely) {
        let is_join = |edge: &Edge| objects[edge.object].kind == SyncKind::Join;
        findings.extend(graph.chains(|edge| !is_join(edge)).iter().map(|chain| of_chain(chain, objects, &graph)));
        let unwoken = findings.iter().filter(|finding| finding.kind.is_unwoken());
        let told: HashSet<RemoteAddr> = unwoken.flat_map(|finding| finding.objects.iter().copied()).collect();
        let unknown = objects.iter().filter(|object| is_held_by_unknown(object) && !told.contains(&object.address));
        findings.extend(unknown.map(|object| of_unknown(object, &graph)));
    }
    let joins = objects.iter().filter(|object| object.kind == SyncKind::Join);
    let joins: HashSet<RemoteAddr> = joins.map(|object| object.address).collect();
    let by_join = |finding: &Finding| {
        finding.kind == FindingKind::LongChain && finding.objects.last().is_some_and(|last| joins.contains(last))
    };
    // Everybody joins threads: that hides nothing that waits behind a lock.
    findings.sort_by_cached_key(|finding| {
        let waiting = finding.threads.len() + finding.behind.len();
        let (certainty, waiting) = (std::cmp::Reverse(finding.certainty), std::cmp::Reverse(waiting));
        (!finding.kind.is_hang(), finding.kind.is_root(), by_join(finding), waiting, certainty, finding.threads.clone())
    });
    findings
}

/// Says who the findings of `snapshot` are about, thread by thread.
pub(super) fn add_members(snapshot: &mut Snapshot) {
    let holders = snapshot.objects.iter().flat_map(|object| &object.holders);
    let waiters = snapshot.objects.iter().flat_map(|object| &object.waiters);
    let strangers: HashMap<Lwp, Pid> = holders
        .filter_map(|holder| Some((holder.lwp?, holder.pid?)))
        .chain(waiters.filter_map(|waiter| Some((waiter.lwp, waiter.pid?))))
        .collect();
    let pid = snapshot.target.pid;
    for finding in &mut snapshot.findings {
        // Of circles and chains each thread has an object of its own, but the root of a chain; else all share one.
        let is_shared = matches!(
            finding.kind,
            FindingKind::OwnerExited
                | FindingKind::OwnerIsForkParent
                | FindingKind::OwnerDied
                | FindingKind::CondWithoutSignaller
                | FindingKind::NobodyLeft
                | FindingKind::HolderUnknown
        );
        let object = |index: usize| finding.objects.get(if is_shared { 0 } else { index }).copied();
        let member = |(index, lwp): (usize, &Lwp)| Member {
            pid: strangers.get(lwp).copied().unwrap_or(pid),
            lwp: Some(*lwp),
            object: object(index),
        };
        finding.members = finding.threads.iter().enumerate().map(member).collect();
        if finding.threads.is_empty() {
            finding.members = finding.objects.iter().map(|at| Member { pid, lwp: None, object: Some(*at) }).collect();
        }
    }
}

fn of_circle(circle: &[(Lwp, Edge)], all: &[SyncObject], graph: &Graph) -> Finding {
    let threads: Vec<Lwp> = circle.iter().map(|(lwp, _)| *lwp).collect();
    let objects: Vec<&SyncObject> = circle.iter().map(|(_, edge)| &all[edge.object]).collect();
    let timed = threads.iter().zip(&objects).any(|(lwp, object)| is_timed(*lwp, object));
    let kind = match (threads.as_slice(), objects.as_slice()) {
        ([lwp], [object]) if object.kind == SyncKind::Rwlock && reads_twice(*lwp, object) => FindingKind::RecursiveRead,
        ([_], _) => FindingKind::SelfDeadlock,
        _ => FindingKind::Deadlock,
    };
    let (certainty, behind) = (circle_certainty(circle, &objects, timed), graph.behind(&threads));
    finding(kind, certainty, threads, objects.iter().map(|object| object.address).collect(), behind)
}

/// Whether the wait of `lwp` for `object` ends by itself.
pub(super) fn is_timed(lwp: Lwp, object: &SyncObject) -> bool {
    object.waiters.iter().any(|waiter| waiter.lwp == lwp && waiter.timed)
}

/// Whether `lwp` wants to read `object` and is said to read it already.
fn reads_twice(lwp: Lwp, object: &SyncObject) -> bool {
    object.waiters.iter().any(|waiter| waiter.lwp == lwp && waiter.side == Some(Side::Read))
        && object.holders.iter().any(|holder| holder.lwp == Some(lwp) && holder.side == Some(Side::Read))
}

/// An object in the hands of nobody who lives.
fn of_owner(object: &SyncObject, graph: &Graph) -> Option<Finding> {
    if object.kind == SyncKind::Join {
        return None;
    }
    let make = |kind, certainty, threads: Vec<Lwp>| {
        let behind = graph.behind(&threads);
        finding(kind, certainty, threads, vec![object.address], behind)
    };
    let waiters = || object.waiters.iter().map(|waiter| waiter.lwp).collect();
    if matches!(object.state, SyncState::OwnerDied | SyncState::Inconsistent) {
        return Some(make(FindingKind::OwnerDied, known_by(object.evidence), waiters()));
    }
    let lost = |holder: &&Holder| matches!(holder.status, HolderStatus::Gone | HolderStatus::ForkParent);
    let holder = object.holders.iter().find(lost)?;
    let kind = match holder.status {
        HolderStatus::Gone => FindingKind::OwnerExited,
        _ => FindingKind::OwnerIsForkParent,
    };
    let is_sure = object.evidence <= Evidence::Derived && holder.evidence <= Evidence::Derived;
    // It is about those that wait for ever; the others are behind.
    let lasting = object.waiters.iter().filter(|waiter| !waiter.timed && waiter.stable);
    let lasting: Vec<Lwp> = lasting.map(|waiter| waiter.lwp).collect();
    let certainty = match (lasting.is_empty(), is_sure) {
        (true, _) => Certainty::Possible,
        (false, false) => Certainty::Likely,
        (false, true) => Certainty::Certain,
    };
    let threads: Vec<Lwp> = if lasting.is_empty() { waiters() } else { lasting };
    if threads.is_empty() {
        return None;
    }
    let mut finding = make(kind, certainty, threads);
    let own: HashSet<Lwp> = finding.threads.iter().copied().collect();
    finding.behind.extend(waiters().into_iter().filter(|lwp| !own.contains(lwp)));
    Some(finding)
}

/// How sure a finding is that nothing but `evidence` limits.
pub(super) fn known_by(evidence: Evidence) -> Certainty {
    if evidence <= Evidence::Derived { Certainty::Certain } else { Certainty::Likely }
}

/// A chain. Its last thread is the root, which waits for nobody we know.
fn of_chain(chain: &Chain, objects: &[SyncObject], graph: &Graph) -> Finding {
    let threads: Vec<Lwp> = chain.steps.iter().map(|(lwp, _)| *lwp).chain([chain.root]).collect();
    let certainty = known_by(chain.steps.iter().map(|(_, edge)| edge.evidence).max().unwrap_or(Evidence::Unknown));
    let own: HashSet<Lwp> = threads.iter().copied().collect();
    let behind = graph.behind(&[chain.root]).into_iter().filter(|lwp| !own.contains(lwp)).collect();
    let objects = chain.steps.iter().map(|(_, edge)| objects[edge.object].address).collect();
    finding(FindingKind::LongChain, certainty, threads, objects, behind)
}

/// Whether threads wait for a lock that somebody holds, and it is not known who.
pub(super) fn is_held_by_unknown(object: &SyncObject) -> bool {
    let is_lock = matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once);
    let is_nobodys = object.holders.iter().all(|holder| holder.status == HolderStatus::Unknown);
    is_lock && is_nobodys && object.state.is_held() && !object.waiters.is_empty()
}

/// Whether threads wait for a lock that nobody holds, as who waits until something is true of what the lock protects does.
pub(super) fn is_held_by_nobody(object: &SyncObject) -> bool {
    let is_lock = matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock);
    is_lock && object.holders.is_empty() && object.state == SyncState::Unlocked && !object.waiters.is_empty()
}

/// A lock that is held, and it is not known by whom.
fn of_unknown(object: &SyncObject, graph: &Graph) -> Finding {
    let threads: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
    let behind = graph.behind(&threads);
    finding(FindingKind::HolderUnknown, known_by(object.evidence), threads, vec![object.address], behind)
}

/// A finding without words and members.
pub(super) fn finding(
    kind: FindingKind,
    certainty: Certainty,
    threads: Vec<Lwp>,
    objects: Vec<RemoteAddr>,
    behind: Vec<Lwp>,
) -> Finding {
    let (members, tasks) = (Vec::new(), Vec::new());
    Finding { kind, certainty, threads, objects, behind, tasks, seen: 1, members, text: String::new() }
}

fn circle_certainty(circle: &[(Lwp, Edge)], objects: &[&SyncObject], timed: bool) -> Certainty {
    if timed || objects.iter().any(|object| object.kind == SyncKind::Semaphore) {
        return Certainty::Possible;
    }
    // Which of several suspects holds a lock that only one can hold is not known.
    let ambiguous = |object: &&SyncObject| object.state != SyncState::ReadLocked && object.holders.len() > 1;
    if objects.iter().any(ambiguous) {
        return Certainty::Possible;
    }
    let evidence = circle.iter().map(|(_, edge)| edge.evidence).chain(objects.iter().map(|object| object.evidence));
    known_by(evidence.max().unwrap_or(Evidence::Unknown))
}
