//! One look at what threads wait for: objects with their state, holders and waiters.

use super::names::LockNamer;
use super::other_processes::OtherProcesses;
use super::owners::Owners;
use super::survey::{Sleeper, Survey, Wait, read_objects};
use super::{held, suspects};
use crate::look::{Look, Scope, facts_now};
use crate::model::{Detail, Evidence, Family, SyncKind, SyncObject, SyncState, Thread};
use crate::proc::map_at;
use crate::runtimes::{self, Class, Content, FutexWait};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, PthreadId, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Up to this many waiting threads are all looked at again, whatever that costs.
const MANY: usize = 1024;

/// Looks, as often as it takes.
pub(super) struct LockSearch<'a> {
    pub(super) look: &'a Look<'a>,
    pub(super) survey: Survey<'a>,
    pub(super) namer: LockNamer<'a>,
    pub(super) scope: Scope,
    /// Objects that are known from elsewhere.
    pub(super) extra: &'a [Class],
}

/// What one look gives.
pub(super) struct SeenLocks {
    pub(super) objects: BTreeMap<RemoteAddr, SyncObject>,
    /// What each object is, and what it says, where that can be read.
    pub(super) read: HashMap<RemoteAddr, (Class, Option<Content>)>,
    pub(super) others: OtherProcesses,
}

type Ids = HashMap<Lwp, Option<PthreadId>>;

impl LockSearch<'_> {
    /// Looks at what `threads` wait for, of which the kernel told `facts`.
    pub(super) fn look(&mut self, threads: &[Thread], facts: &BTreeMap<Lwp, LwpFacts>) -> SeenLocks {
        let ids: Ids = threads.iter().filter_map(|thread| Some((thread.lwp?, thread.id))).collect();
        let sleepers: Vec<Sleeper> = facts.values().filter_map(|facts| Some((facts.lwp, facts.syscall?))).collect();
        let mut waits = self.survey.waits(&sleepers);
        know_words_better(&mut waits, self.extra);
        let mut classes = HashMap::new();
        add_classes(&mut classes, waits.iter().map(|wait| wait.class));
        add_classes(&mut classes, self.extra.iter().copied());
        let mut names = HashMap::new();
        if self.scope >= Scope::Held {
            add_classes(&mut classes, self.not_waited_for(&waits, facts, &ids, &mut names));
        }
        let classes: Vec<Class> = classes.into_values().collect();
        let contents = read_objects(&self.survey.context, &classes);
        let read: HashMap<_, _> = classes.into_iter().zip(contents).map(|it| (it.0.address, it)).collect();
        let stable = settle(self.look.target, &mut waits, facts);
        let owners = Owners::new(self.look.target, threads);
        let object = |(class, content): &(Class, _)| object(self.look.target, class, Option::as_ref(content), &owners);
        let objects = read.iter().map(|(address, read)| (*address, object(read))).collect();
        let mut seen = SeenLocks { objects, read, others: OtherProcesses::default() };
        add_waiters(&mut seen.objects, &waits, &stable, &ids);
        seen.follow_other_processes(&self.survey, &owners);
        suspects::infer(self.look, threads, facts, &mut seen.objects);
        for (address, object) in &mut seen.objects {
            object.name = names.remove(address);
        }
        let extra: HashSet<RemoteAddr> = self.extra.iter().map(|class| class.address).collect();
        seen.objects.retain(|address, object| is_in_scope(object, self.scope) || extra.contains(address));
        seen
    }

    /// Objects that nobody may wait for; those that are variables bring their names.
    fn not_waited_for(
        &mut self,
        waits: &[Wait],
        facts: &BTreeMap<Lwp, LwpFacts>,
        ids: &Ids,
        names: &mut HashMap<RemoteAddr, String>,
    ) -> Vec<Class> {
        let survey = &self.survey;
        let variables = self.namer.variables(&|tid| survey.context.has_thread(tid));
        let mut found: Vec<Class> = variables.iter().map(|(class, _)| *class).collect();
        names.extend(variables.into_iter().map(|(class, name)| (class.address, name)));
        let given_up = |wait: &Wait| Some(idle(SyncKind::Mutex, wait.class.family, wait.mutex?, Evidence::Derived));
        found.extend(waits.iter().filter_map(given_up));
        found.extend(runtimes::registered(&survey.context, facts, ids));
        if survey.context.libc.is_some() {
            found.extend(held::on_stacks(self.look.target, &survey.context, facts));
        }
        found
    }
}

/// An object for which no wait is known.
pub(super) fn idle(kind: SyncKind, family: Family, address: RemoteAddr, evidence: Evidence) -> Class {
    Class { kind, family, address, side: None, evidence }
}

/// Adds objects, each once: as it is known best.
fn add_classes(classes: &mut HashMap<RemoteAddr, Class>, found: impl IntoIterator<Item = Class>) {
    for class in found {
        let known = classes.entry(class.address).or_insert(class);
        if class.evidence < known.evidence {
            *known = class;
        }
    }
}

/// A thread that moves while its stack is read may seem to wait for a bare word: what others know of that is better.
fn know_words_better(waits: &mut [Wait], extra: &[Class]) {
    let is_word = |class: &Class| class.kind == SyncKind::Futex;
    let mut known = HashMap::new();
    add_classes(&mut known, waits.iter().map(|wait| wait.class).chain(extra.iter().copied()).filter(|it| !is_word(it)));
    for wait in waits.iter_mut().filter(|wait| is_word(&wait.class)) {
        if let Some(known) = known.get(&wait.class.address) {
            wait.class = *known;
        }
    }
}

fn add_waiters(objects: &mut BTreeMap<RemoteAddr, SyncObject>, waits: &[Wait], stable: &HashMap<Lwp, bool>, ids: &Ids) {
    for wait in waits {
        let Some(object) = objects.get_mut(&wait.class.address) else { continue };
        let is_stable = stable.get(&wait.lwp).copied().unwrap_or(false);
        // One that moved may by now hold what it waited for.
        if !is_stable && object.holders.iter().any(|holder| holder.lwp == Some(wait.lwp)) {
            continue;
        }
        if let (Detail::Cond { mutex, .. }, Some(given_up)) = (&mut object.detail, wait.mutex) {
            *mutex = Some(given_up);
        }
        object.waiters.push(wait.waiter(ids.get(&wait.lwp).copied().flatten(), is_stable));
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

/// Which of the waiting threads have not moved since they were looked at first. Those that wait for
/// something else now are taken away; those that came back to the same word are kept as not stable. Where a
/// look costs by the thread and there are very many, whoever waits for nobody (on a condition, at a
/// barrier) is not looked at again: nothing is concluded from it.
fn settle(target: &dyn Target, waits: &mut Vec<Wait>, facts: &BTreeMap<Lwp, LwpFacts>) -> HashMap<Lwp, bool> {
    let is_cheap = waits.len() <= MANY || target.gives_facts_in_bulk() || target.identity().core.is_some();
    let waits_for_nobody = [SyncKind::Cond, SyncKind::Barrier, SyncKind::Park, SyncKind::Futex];
    let is_looked_at = |wait: &Wait| is_cheap || !waits_for_nobody.contains(&wait.class.kind);
    let lwps: Vec<Lwp> = waits.iter().filter(|wait| is_looked_at(wait)).map(|wait| wait.lwp).collect();
    let now: HashMap<Lwp, LwpFacts> = facts_now(target, &lwps);
    let mut stable = HashMap::new();
    waits.retain(|wait| {
        if !is_looked_at(wait) {
            return true;
        }
        let (Some(before), Some(now)) = (facts.get(&wait.lwp), now.get(&wait.lwp)) else { return false };
        let same = has_not_moved(before, now);
        stable.insert(wait.lwp, same);
        // A condition variable has more than one word.
        let may_be_inside = wait.class.kind == SyncKind::Cond || wait.class.keeps_waiting();
        let is_there = |word| word == wait.futex.word || may_be_inside && wait.class.contains(word);
        same || now.syscall.as_ref().and_then(FutexWait::of).is_some_and(|futex| is_there(futex.word))
    });
    stable
}

/// Whether a thread was blocked in one call all the time between two looks.
pub(crate) fn has_not_moved(before: &LwpFacts, now: &LwpFacts) -> bool {
    // A thread that went to sleep again has given up the CPU once more.
    before.syscall == now.syscall && before.syscall.is_some() && before.switches == now.switches
}

pub(super) fn object(target: &dyn Target, class: &Class, content: Option<&Content>, owners: &Owners<'_>) -> SyncObject {
    let mut object = SyncObject::bare(class.address, class.kind, class.family, class.evidence);
    let in_shared_memory = map_at(target.maps(), class.address).is_some_and(|map| map.shared);
    // A word that does not say so may be used by whoever has it mapped.
    object.shared =
        content.and_then(|content| content.shared).or((class.kind == SyncKind::Futex).then_some(in_shared_memory));
    if let Some(content) = content {
        object.size = content.size;
        // What cannot be such an object is not read as one.
        if content.is_plausible {
            object.state = content.state;
            object.detail = content.detail.clone();
            object.holders = owners.recorded(class.kind, content, in_shared_memory);
        }
    }
    object
}
