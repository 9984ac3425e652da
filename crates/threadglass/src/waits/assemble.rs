//! One look at threads, what they wait for, and who holds it.

use super::abroad::{Abroad, Known};
use super::classify::Class;
use super::confirm::Confirm;
use super::findings;
use super::held;
use super::names::Namer;
use super::owners::Owners;
use super::survey::{Content, Sleeper, Survey, Wait};
use super::{suspects, words};
use crate::glibc::Layout;
use crate::model::{Detail, Evidence, Gap, Holds, Snapshot, SyncKind, SyncObject, SyncState, Waiter, WaitsFor};
use crate::proc::MapEntry;
use crate::symbols::{LockVariable, Symbolizer};
use crate::target::{LwpFacts, Target, TargetError};
use crate::threads::{Collected, collect_with};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

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
    collect_extra(target, scope, &[])
}

/// [`collect_scope`], with objects that are known from elsewhere.
pub(super) fn collect_extra(target: &dyn Target, scope: Scope, extra: &[Class]) -> Result<Snapshot, TargetError> {
    collect_look(target, scope, extra, Namer::new(target), &|object, finding| {
        scope >= Scope::Held || finding || extra.iter().any(|class| class.address == object.address)
    })
}

/// [`collect`], with names for all objects that are variables.
pub fn collect_named(target: &dyn Target) -> Result<Snapshot, TargetError> {
    collect_look(target, Scope::Waited, &[], Namer::new(target), &|_, _| true)
}

/// [`collect_scope`] for those who look often and show no names: `variables` are all locks in variables, which
/// [`DataNames::lock_variables`](crate::symbols::DataNames::lock_variables) takes its time to find.
pub fn collect_unnamed(target: &dyn Target, scope: Scope, variables: &[LockVariable]) -> Result<Snapshot, TargetError> {
    collect_look(target, scope, &[], Namer::knowing(target, variables), &|_, _| false)
}

/// Everything. `named` says which objects are to be named: whether it is part of a finding is its second
/// argument.
fn collect_look(
    target: &dyn Target,
    scope: Scope,
    extra: &[Class],
    mut namer: Namer<'_>,
    named: &dyn Fn(&SyncObject, bool) -> bool,
) -> Result<Snapshot, TargetError> {
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
    let mut strangers = BTreeMap::new();
    for attempt in 0..TRIES {
        let mut look = Look::take(target, &mut survey, &mut namer, layout.as_ref(), &snapshot, &facts, (scope, extra));
        snapshot.objects = std::mem::take(&mut look.objects);
        let found = findings::find(&snapshot.objects, &facts);
        let Look { objects: _, classes, contents, abroad } = &look;
        let confirm = Confirm { target, survey: &survey, facts: &facts, classes, contents, abroad };
        let (confirmed, dissolved) = confirm.check(found, &snapshot.objects);
        snapshot.findings = confirmed;
        strangers = abroad.facts.clone();
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
    let shown: HashSet<RemoteAddr> =
        snapshot.findings.iter().flat_map(|finding| finding.objects.iter().copied()).collect();
    namer.name(&mut snapshot, &facts, &|object| named(object, shown.contains(&object.address)));
    words::describe(&mut snapshot, &facts, &strangers);
    target.check_identity()?;
    tell_threads(&mut snapshot);
    Ok(snapshot)
}

/// What one look gives.
struct Look {
    objects: Vec<SyncObject>,
    classes: HashMap<RemoteAddr, Class>,
    contents: HashMap<RemoteAddr, Content>,
    abroad: Abroad,
}

impl Look {
    fn take(
        target: &dyn Target,
        survey: &mut Survey<'_>,
        namer: &mut Namer<'_>,
        layout: Option<&Layout>,
        snapshot: &Snapshot,
        facts: &BTreeMap<Lwp, LwpFacts>,
        (scope, extra): (Scope, &[Class]),
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
        let mut classes = classes(&waits);
        for class in extra {
            classes.entry(class.address).or_insert(*class);
        }
        let mut names: HashMap<RemoteAddr, String> = HashMap::new();
        if scope >= Scope::Held {
            let variables = namer.variables(&|tid| survey.has_thread(tid));
            let mut found: Vec<Class> = variables.iter().map(|(class, _)| *class).collect();
            names.extend(variables.into_iter().map(|(class, name)| (class.address, name)));
            found.extend(held::given_up(&waits));
            if let Some(layout) = layout {
                found.extend(held::robust_lists(target, layout, facts, &ids));
                found.extend(held::on_stacks(target, survey, facts));
            }
            for class in found {
                let known = classes.entry(class.address).or_insert(class);
                if class.evidence < known.evidence {
                    *known = class;
                }
            }
        }
        let list: Vec<Class> = classes.values().copied().collect();
        let contents = survey.read(&list);
        let mut contents: HashMap<RemoteAddr, Content> =
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
                pid: None,
                side: wait.class.side,
                timed: wait.futex.timed,
                stable: is_stable,
                evidence: wait.class.evidence,
            });
        }
        let mut abroad = Abroad::default();
        abroad.follow(
            target,
            survey,
            &owners,
            &mut Known { objects: &mut objects, classes: &mut classes, contents: &mut contents },
        );
        suspects::infer(target, &snapshot.threads, facts, &mut objects);
        for (address, object) in &mut objects {
            object.name = names.remove(address);
        }
        let is_extra = |object: &SyncObject| extra.iter().any(|class| class.address == object.address);
        objects.retain(|_, object| is_in_scope(object, scope) || is_extra(object));
        Self { objects: objects.into_values().collect(), classes, contents, abroad }
    }
}

fn is_in_scope(object: &SyncObject, scope: Scope) -> bool {
    let held = || {
        object.state.is_held()
            || !object.holders.is_empty()
            || matches!(object.state, SyncState::OwnerDied | SyncState::NotRecoverable)
    };
    !object.waiters.is_empty() || scope >= Scope::Held && held() || scope == Scope::All
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
fn settle(target: &dyn Target, waits: &mut Vec<Wait>, facts: &BTreeMap<Lwp, LwpFacts>) -> HashMap<Lwp, bool> {
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
    map_at(target.maps(), addr).is_some_and(|map| map.shared)
}

/// The mapping that holds `addr`.
pub(super) fn map_at(maps: &[MapEntry], addr: RemoteAddr) -> Option<&MapEntry> {
    let behind = maps.partition_point(|map| map.start <= addr);
    maps.get(behind.checked_sub(1)?).filter(|map| map.contains(addr))
}

/// Gives each thread what it waits for and what it holds.
fn tell_threads(snapshot: &mut Snapshot) {
    let mut waits: HashMap<Lwp, WaitsFor> = HashMap::new();
    let mut holds: HashMap<Lwp, Vec<Holds>> = HashMap::new();
    for object in &snapshot.objects {
        let held_by: Vec<Lwp> = object.holders.iter().filter_map(|holder| holder.lwp).collect();
        for waiter in object.waiters.iter().filter(|waiter| waiter.pid.is_none()) {
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
