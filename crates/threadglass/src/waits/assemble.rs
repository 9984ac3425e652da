//! One look at threads, what they wait for, and who holds it.

use super::classify::Class;
use super::confirm::Confirm;
use super::findings;
use super::owners::Owners;
use super::survey::{Content, Sleeper, Survey, Wait};
use crate::Lwp;
use crate::RemoteAddr;
use crate::model::{Detail, Evidence, Gap, Holds, Snapshot, SyncKind, SyncObject, SyncState, Waiter, WaitsFor};
use crate::symbols::Symbolizer;
use crate::target::{LwpFacts, Target, TargetError};
use crate::threads::{Collected, collect_with};
use std::collections::{BTreeMap, HashMap};

/// How often a look is taken again because a circle dissolved while it was looked at.
const TRIES: usize = 3;

/// Which objects are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Those that threads wait for.
    Waited,
    /// Those that threads hold as well, as far as they can be found.
    Held,
    /// Idle ones too, where a variable's type or symbol names them.
    All,
}

/// Looks at the threads of `target` and at what they wait for.
pub fn collect(target: &dyn Target) -> Result<Snapshot, TargetError> {
    collect_scope(target, Scope::Waited)
}

/// [`collect`], with more objects.
pub fn collect_scope(target: &dyn Target, scope: Scope) -> Result<Snapshot, TargetError> {
    let Collected { mut snapshot, layout, mut facts } = collect_with(target, &mut Symbolizer::new(target))?;
    if target.denial().is_some() {
        // The threads' gap says why.
        return Ok(snapshot);
    }
    if layout.is_none() {
        let why = "without glibc a wait is only known as that for a word of memory";
        snapshot.gaps.push(Gap::whole("kinds and holders of synchronization objects", why));
    }
    let threads = snapshot.threads.iter().map(|thread| (thread.inner_lwp, thread.id, thread.lwp));
    let mut survey = Survey::new(target, target, layout.as_ref(), threads);
    for attempt in 0..TRIES {
        let look = Look::take(target, &mut survey, &snapshot, &mut facts, scope);
        snapshot.objects = look.objects;
        let found = findings::find(&snapshot, &facts);
        let confirm =
            Confirm { target, survey: &survey, facts: &facts, classes: &look.classes, contents: &look.contents };
        let (confirmed, dissolved) = confirm.check(found, &snapshot.objects);
        snapshot.findings = confirmed;
        if !dissolved {
            break;
        }
        if attempt + 1 == TRIES {
            let why = "threads moved on while a circle of them was looked at, each time: it was none";
            snapshot.gaps.push(Gap::whole("circles of waiting threads", why));
        }
        let lwps: Vec<Lwp> = facts.keys().copied().collect();
        facts = target.facts(&lwps).into_iter().flatten().map(|facts| (facts.lwp, facts)).collect();
    }
    target.check_identity()?;
    tell_threads(&mut snapshot);
    Ok(snapshot)
}

/// What one look gives.
struct Look {
    objects: Vec<SyncObject>,
    classes: HashMap<RemoteAddr, Class>,
    contents: HashMap<RemoteAddr, Content>,
}

impl Look {
    fn take(
        target: &dyn Target,
        survey: &mut Survey<'_>,
        snapshot: &Snapshot,
        facts: &mut BTreeMap<Lwp, LwpFacts>,
        _scope: Scope,
    ) -> Self {
        let ids: HashMap<Lwp, _> =
            snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread.id))).collect();
        let sleepers: Vec<Sleeper> = facts
            .values()
            .map(|facts| Sleeper {
                lwp: facts.lwp,
                inner: facts.inner,
                id: ids.get(&facts.lwp).copied().flatten(),
                call: facts.syscall,
            })
            .collect();
        let mut waits = survey.waits(&sleepers);
        let classes = classes(&waits);
        let list: Vec<Class> = classes.values().copied().collect();
        let contents = survey.read(&list);
        let contents: HashMap<RemoteAddr, Content> =
            list.iter().zip(contents).filter_map(|(class, content)| Some((class.address, content?))).collect();
        let stable = settle(target, &mut waits, facts);
        let owners = Owners::new(target, &snapshot.threads);
        let mut objects: BTreeMap<RemoteAddr, SyncObject> = classes
            .values()
            .map(|class| (class.address, object(target, class, contents.get(&class.address), &owners)))
            .collect();
        for wait in &waits {
            let Some(object) = objects.get_mut(&wait.class.address) else { continue };
            let is_stable = stable.get(&wait.lwp).copied().unwrap_or(false);
            // One that moved may by now hold what it waited for.
            if !is_stable && object.holders.iter().any(|holder| holder.lwp == Some(wait.lwp)) {
                continue;
            }
            if let (Detail::Cond { mutex, .. }, Some(given_up)) = (&mut object.detail, wait.mutex) {
                *mutex = Some(given_up);
            }
            object.waiters.push(Waiter {
                lwp: wait.lwp,
                thread: ids.get(&wait.lwp).copied().flatten(),
                side: wait.class.side,
                timed: wait.futex.timed,
                stable: is_stable,
                evidence: wait.class.evidence,
            });
        }
        objects.retain(|_, object| !object.waiters.is_empty());
        Self { objects: objects.into_values().collect(), classes, contents }
    }
}

/// The objects of `waits`, each once: as the best known wait has it.
fn classes(waits: &[Wait]) -> HashMap<RemoteAddr, Class> {
    let mut classes: HashMap<RemoteAddr, Class> = HashMap::new();
    for wait in waits {
        let class = classes.entry(wait.class.address).or_insert(wait.class);
        if wait.class.evidence < class.evidence {
            *class = wait.class;
        }
    }
    classes
}

/// Which of the waiting threads have not moved since they were looked at first. Those that wait for
/// something else now are taken away; those that came back to the same word are kept as not stable.
fn settle(target: &dyn Target, waits: &mut Vec<Wait>, facts: &mut BTreeMap<Lwp, LwpFacts>) -> HashMap<Lwp, bool> {
    let lwps: Vec<Lwp> = waits.iter().map(|wait| wait.lwp).collect();
    let now: HashMap<Lwp, LwpFacts> =
        target.facts(&lwps).into_iter().flatten().map(|facts| (facts.lwp, facts)).collect();
    let mut stable = HashMap::new();
    waits.retain(|wait| {
        let (Some(before), Some(now)) = (facts.get(&wait.lwp), now.get(&wait.lwp)) else { return false };
        let same = has_not_moved(before, now);
        stable.insert(wait.lwp, same);
        same || now.syscall.as_ref().and_then(super::FutexWait::of).is_some_and(|futex| futex.word == wait.futex.word)
    });
    stable
}

/// Whether a thread was blocked in one call all the time between two looks.
pub(super) fn has_not_moved(before: &LwpFacts, now: &LwpFacts) -> bool {
    // Who went to sleep again has given up the CPU once more.
    before.syscall == now.syscall && before.syscall.is_some() && before.switches == now.switches
}

pub(super) fn object(target: &dyn Target, class: &Class, content: Option<&Content>, owners: &Owners<'_>) -> SyncObject {
    let mut object = SyncObject {
        address: class.address,
        kind: class.kind,
        family: class.family,
        evidence: class.evidence,
        name: None,
        size: None,
        shared: None,
        state: SyncState::Unknown,
        detail: Detail::None {},
        holders: Vec::new(),
        waiters: Vec::new(),
    };
    if let Some(content) = content {
        object.size = content.size;
        object.shared = content.shared;
        // What cannot be such an object is not read as one.
        if content.is_plausible {
            let shared_memory = is_in_shared_memory(target, class.address);
            object.state = content.state;
            object.detail = content.detail.clone();
            object.holders = owners.recorded(class.kind, content, shared_memory);
        }
    }
    object
}

fn is_in_shared_memory(target: &dyn Target, addr: RemoteAddr) -> bool {
    target.maps().iter().find(|map| map.contains(addr)).is_some_and(|map| map.shared)
}

/// Gives each thread what it waits for and what it holds.
fn tell_threads(snapshot: &mut Snapshot) {
    let mut waits: HashMap<Lwp, WaitsFor> = HashMap::new();
    let mut holds: HashMap<Lwp, Vec<Holds>> = HashMap::new();
    for object in &snapshot.objects {
        let held_by: Vec<Lwp> = object.holders.iter().filter_map(|holder| holder.lwp).collect();
        for waiter in &object.waiters {
            waits.insert(
                waiter.lwp,
                WaitsFor {
                    address: object.address,
                    kind: object.kind,
                    name: object.name.clone(),
                    side: waiter.side,
                    timed: waiter.timed,
                    since_ms: None,
                    held_by: held_by.clone(),
                    evidence: waiter.evidence,
                },
            );
        }
        // A thread that is joined holds nothing.
        for holder in object.holders.iter().filter(|_| object.kind != SyncKind::Join) {
            let Some(lwp) = holder.lwp.filter(|_| holder.pid.is_none()) else { continue };
            holds.entry(lwp).or_default().push(Holds {
                address: object.address,
                kind: object.kind,
                name: object.name.clone(),
                side: holder.side,
                evidence: holder.evidence.max(object.evidence.min(Evidence::Inferred)),
            });
        }
    }
    for thread in &mut snapshot.threads {
        let Some(lwp) = thread.lwp else { continue };
        thread.waits_for = waits.remove(&lwp);
        thread.holds = holds.remove(&lwp).unwrap_or_default();
    }
}
