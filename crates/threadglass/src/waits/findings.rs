//! What is wrong, in words.

use super::graph::{Edge, Graph};
use crate::Lwp;
use crate::model::{
    Certainty, Detail, Evidence, Finding, FindingKind, Holder, HolderStatus, Side, Snapshot, SyncKind, SyncObject,
    SyncState, Thread, ThreadState,
};
use crate::proc::KernelState;
use crate::target::LwpFacts;
use std::collections::{BTreeMap, HashMap, HashSet};

/// All findings of a snapshot whose objects are known; the worst first.
pub(super) fn find(snapshot: &Snapshot, facts: &BTreeMap<Lwp, LwpFacts>) -> Vec<Finding> {
    let words = Words::new(snapshot, facts);
    let graph = Graph::new(&snapshot.objects);
    let mut findings: Vec<Finding> = graph.circles().iter().map(|circle| words.circle(circle, &graph)).collect();
    findings.extend(snapshot.objects.iter().flat_map(|object| words.owner(object, &graph)));
    if !findings.iter().any(|finding| finding.kind.is_hang()) {
        findings.extend(words.chain(&graph));
    }
    findings.extend(words.unsignalled());
    findings.sort_by_key(|finding| {
        (!finding.kind.is_hang(), std::cmp::Reverse(finding.certainty), finding.kind, finding.threads.clone())
    });
    findings
}

struct Words<'a> {
    objects: &'a [SyncObject],
    threads: HashMap<Lwp, &'a Thread>,
    facts: &'a BTreeMap<Lwp, LwpFacts>,
}

impl<'a> Words<'a> {
    fn new(snapshot: &'a Snapshot, facts: &'a BTreeMap<Lwp, LwpFacts>) -> Self {
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        Self { objects: &snapshot.objects, threads, facts }
    }

    fn thread(&self, lwp: Lwp) -> String {
        match self.threads.get(&lwp).and_then(|thread| thread.name.as_deref()) {
            Some(name) => format!("{name} ({lwp})"),
            None => format!("thread {lwp}"),
        }
    }

    fn circle(&self, circle: &[(Lwp, Edge)], graph: &Graph) -> Finding {
        let threads: Vec<Lwp> = circle.iter().map(|(lwp, _)| *lwp).collect();
        let objects: Vec<&SyncObject> = circle.iter().map(|(_, edge)| &self.objects[edge.object]).collect();
        let timed = circle.iter().any(|(lwp, edge)| self.is_timed(*lwp, edge));
        let certainty = circle_certainty(circle, &objects, timed);
        let kind = match (circle, objects.as_slice()) {
            ([_], [object]) if object.kind == SyncKind::Rwlock && self.reads(threads[0], object) => {
                FindingKind::RecursiveRead
            }
            ([_], _) => FindingKind::SelfDeadlock,
            _ => FindingKind::Deadlock,
        };
        let behind = graph.behind(&threads);
        let steps: Vec<String> = circle
            .iter()
            .map(|(lwp, edge)| {
                let object = &self.objects[edge.object];
                format!("{} waits for {}, held by {}", self.thread(*lwp), label(object), self.thread(edge.to))
            })
            .collect();
        let mut text = match kind {
            FindingKind::RecursiveRead => format!(
                "{} reads {} already and wants to read it again, but a writer is queued in between",
                self.thread(threads[0]),
                label(objects[0])
            ),
            FindingKind::SelfDeadlock => match objects[0].kind {
                SyncKind::Join => format!("{} joins itself", self.thread(threads[0])),
                _ => format!("{} waits for {}, which it holds itself", self.thread(threads[0]), label(objects[0])),
            },
            _ => steps.join("; "),
        };
        if timed {
            text += " (a wait among these has a time limit, so it may end by itself)";
        }
        let objects = objects.iter().map(|object| object.address).collect();
        Finding { kind, certainty, threads, objects, behind, text }
    }

    fn is_timed(&self, lwp: Lwp, edge: &Edge) -> bool {
        self.objects[edge.object].waiters.iter().any(|waiter| waiter.lwp == lwp && waiter.timed)
    }

    /// Whether `lwp` wants to read `object` and is said to read it already.
    fn reads(&self, lwp: Lwp, object: &SyncObject) -> bool {
        object.waiters.iter().any(|waiter| waiter.lwp == lwp && waiter.side == Some(Side::Read))
            && object.holders.iter().any(|holder| holder.lwp == Some(lwp) && holder.side == Some(Side::Read))
    }

    /// Objects in the hands of nobody who lives.
    fn owner(&self, object: &SyncObject, graph: &Graph) -> Option<Finding> {
        if object.waiters.is_empty() || object.kind == SyncKind::Join {
            return None;
        }
        let threads: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
        let make = |kind, certainty, text| Finding {
            kind,
            certainty,
            behind: graph.behind(&threads),
            threads: threads.clone(),
            objects: vec![object.address],
            text,
        };
        if object.state == SyncState::OwnerDied {
            let text = format!(
                "the owner of {} died; it is free for the next thread, which must repair what it guards",
                label(object)
            );
            return Some(make(FindingKind::OwnerDied, Certainty::Certain, text));
        }
        let holder = object
            .holders
            .iter()
            .find(|holder| matches!(holder.status, HolderStatus::Gone | HolderStatus::ForkParent))?;
        let number = holder.recorded.map_or_else(String::new, |inner| format!(" {inner}"));
        let (kind, what) = match holder.status {
            HolderStatus::Gone => {
                (FindingKind::OwnerExited, format!("is held by thread{number}, which does not exist any more"))
            }
            _ => (
                FindingKind::OwnerIsForkParent,
                format!(
                    "was held by thread{number} of the parent process {} at the time of the fork: here nobody can release it",
                    holder.pid.map_or_else(String::new, |pid| pid.to_string())
                ),
            ),
        };
        let text = format!("{} {what}; {} for it", label(object), count(threads.len(), "thread waits", "threads wait"));
        let forever = object.waiters.iter().any(|waiter| !waiter.timed && waiter.stable);
        let certainty = match (forever, owner_is_sure(object, holder)) {
            (false, _) => Certainty::Possible,
            (true, false) => Certainty::Likely,
            (true, true) => Certainty::Certain,
        };
        let mut finding = make(kind, certainty, text);
        // It is about those that wait for ever.
        if forever {
            let ends =
                |lwp: &Lwp| object.waiters.iter().any(|waiter| waiter.lwp == *lwp && (waiter.timed || !waiter.stable));
            let (timed, lasting) = std::mem::take(&mut finding.threads).into_iter().partition(ends);
            let timed: Vec<Lwp> = timed;
            finding.threads = lasting;
            finding.behind.extend(timed);
        }
        Some(finding)
    }

    fn chain(&self, graph: &Graph) -> Option<Finding> {
        let (chain, root) = graph.longest_chain()?;
        let mut threads: Vec<Lwp> = chain.iter().map(|(lwp, _)| *lwp).collect();
        let objects = chain.iter().map(|(_, edge)| self.objects[edge.object].address).collect();
        let last = &self.objects[chain.last()?.1.object];
        threads.push(root);
        let weakest = chain.iter().map(|(_, edge)| edge.evidence).max()?;
        let behind = graph.behind(&[root]).into_iter().filter(|lwp| !threads.contains(lwp)).collect::<Vec<_>>();
        let waiting = threads.len() - 1 + behind.len();
        let text = format!(
            "{} for {} in the end, which holds {} and {}",
            count(waiting, "thread waits", "threads wait"),
            self.thread(root),
            label(last),
            self.doing(root)
        );
        let certainty = if weakest <= Evidence::Derived { Certainty::Certain } else { Certainty::Likely };
        Some(Finding { kind: FindingKind::LongChain, certainty, threads, objects, behind, text })
    }

    /// What the thread at the end of a chain does.
    fn doing(&self, lwp: Lwp) -> String {
        let Some(thread) = self.threads.get(&lwp) else { return "is not known".to_owned() };
        match thread.state {
            ThreadState::Active => "runs".to_owned(),
            ThreadState::Run => "is kept from a CPU".to_owned(),
            ThreadState::Stopped => "is stopped".to_owned(),
            ThreadState::Zombie => "has ended".to_owned(),
            ThreadState::Unknown => "is in a state that cannot be told".to_owned(),
            ThreadState::Sleep | ThreadState::StoppedAsleep => {
                let stopped = if thread.state == ThreadState::StoppedAsleep { "is stopped, " } else { "" };
                let waits = self.objects.iter().find(|object| object.waiters.iter().any(|waiter| waiter.lwp == lwp));
                let deep = self.facts.get(&lwp).is_some_and(|facts| facts.state == KernelState::DiskSleep);
                let deep = if deep { " where no signal wakes it (D state)" } else { "" };
                match (waits, &thread.syscall) {
                    (Some(object), _) => format!("{stopped}waits for {}", label(object)),
                    (None, Some(call)) => format!("{stopped}is asleep in {}{deep}", call.name()),
                    (None, None) => format!("{stopped}is asleep{deep}"),
                }
            }
        }
    }

    /// Condition variables with waiters while no thread is left that could signal.
    fn unsignalled(&self) -> Vec<Finding> {
        let waiting: HashSet<Lwp> =
            self.objects.iter().flat_map(|object| &object.waiters).map(|waiter| waiter.lwp).collect();
        let idle = self.facts.values().all(|facts| waiting.contains(&facts.lwp) || facts.state.has_ended());
        let waits = |kind: SyncKind| self.objects.iter().filter(move |object| object.kind == kind);
        let timed = self.objects.iter().flat_map(|object| &object.waiters).any(|waiter| waiter.timed || !waiter.stable);
        if !idle || timed {
            return Vec::new();
        }
        waits(SyncKind::Cond)
            .filter(|object| object.shared != Some(true))
            .map(|object| {
                let threads: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
                Finding {
                    kind: FindingKind::CondWithoutSignaller,
                    certainty: Certainty::Possible,
                    text: format!(
                        "{} on {}, and every other thread of the process waits too: nobody is left to signal, unless a \
                         signal handler does",
                        count(threads.len(), "thread waits", "threads wait"),
                        label(object)
                    ),
                    threads,
                    objects: vec![object.address],
                    behind: Vec::new(),
                }
            })
            .collect()
    }
}

fn owner_is_sure(object: &SyncObject, holder: &Holder) -> bool {
    object.evidence <= Evidence::Derived && holder.evidence <= Evidence::Derived
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
    if circle.iter().all(|(_, edge)| edge.evidence <= Evidence::Derived) {
        return Certainty::Certain;
    }
    // Contents alone led to these mutexes; but each of them has signed for by the next thread of the circle,
    // which cannot be chance.
    let signed = |(_, edge): &(Lwp, Edge)| {
        let object = objects.iter().find(|object| object.holders.iter().any(|holder| holder.lwp == Some(edge.to)));
        object.is_some_and(|object| {
            matches!(object.detail, Detail::Mutex { .. })
                && object.holders.iter().all(|holder| holder.evidence == Evidence::Recorded)
        })
    };
    if circle.len() > 1 && circle.iter().all(signed) { Certainty::Certain } else { Certainty::Likely }
}

fn label(object: &SyncObject) -> String {
    match &object.name {
        Some(name) => format!("{} {name}", object.kind.word()),
        None => format!("{} {}", object.kind.word(), object.address),
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
