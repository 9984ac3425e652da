//! One look at threads, what they wait for, and who holds it.

use super::confirm::Confirm;
use super::look::{Look, Looker};
use super::names::Namer;
use super::survey::Survey;
use super::{findings, words};
use crate::look::threads::{Collected, collect_with};
use crate::model::{Evidence, Gap, Holds, Snapshot, SyncKind, SyncObject, WaitsFor};
use crate::proc::SyscallFile;
use crate::runtimes::{self, Class};
use crate::symbols::{LockVariable, Symbolizer};
use crate::target::{LwpFacts, Target, TargetError};
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

/// [`collect`], with more objects; an error where none can be seen, because the memory may not be read.
pub fn collect_scope(target: &dyn Target, scope: Scope) -> Result<Snapshot, TargetError> {
    if let Some(denial) = target.denial() {
        return Err(TargetError::NoLocks { pid: target.pid(), why: denial.to_string() });
    }
    let _look = target.limits().begin();
    // What the agent knows, of which no variable tells.
    let tracked = if scope == Scope::All { crate::table::registered(target) } else { Vec::new() };
    let registered: Vec<Class> = tracked
        .into_iter()
        .map(|(address, kind)| Class {
            kind,
            family: runtimes::usual(kind),
            address,
            side: None,
            evidence: Evidence::Recorded,
        })
        .collect();
    let mut snapshot = collect_extra(target, scope, &registered)?;
    crate::table::add_stats(target, &mut snapshot);
    target.limits().report(&mut snapshot.gaps);
    Ok(snapshot)
}

/// [`collect_scope`], with objects that are known from elsewhere.
pub(super) fn collect_extra(target: &dyn Target, scope: Scope, extra: &[Class]) -> Result<Snapshot, TargetError> {
    collect_look(target, scope, extra, Namer::new(target), &|object, finding| {
        scope >= Scope::Held || finding || extra.iter().any(|class| class.address == object.address)
    })
}

/// The threads of `target` with what they wait for, and names for all objects that are variables. Where the
/// memory may not be read, the threads alone.
pub fn collect_named(target: &dyn Target) -> Result<Snapshot, TargetError> {
    collect_look(target, Scope::Waited, &[], Namer::new(target), &|_, _| true)
}

/// [`collect_scope`] for those who look often and show no names: `variables` are all locks in variables, which
/// [`DataNames::lock_variables`](crate::symbols::DataNames::lock_variables) takes its time to find.
pub fn collect_unnamed(target: &dyn Target, scope: Scope, variables: &[LockVariable]) -> Result<Snapshot, TargetError> {
    collect_look(target, scope, &[], Namer::knowing(target, variables), &|_, _| false)
}

/// Everything. `named` says which objects are to be named: whether it is shown with a finding is its second
/// argument.
fn collect_look(
    target: &dyn Target,
    scope: Scope,
    extra: &[Class],
    namer: Namer<'_>,
    named: &dyn Fn(&SyncObject, bool) -> bool,
) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
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
    let survey = Survey::new(target, target, layout.as_ref(), threads);
    let mut looker = Looker { target, survey, namer, scope, extra };
    let mut strangers = BTreeMap::new();
    for attempt in 0..TRIES {
        let Look { objects, classes, contents, abroad } = looker.look(&snapshot.threads, &facts);
        snapshot.objects = objects;
        let found = findings::find(&snapshot.objects, &facts);
        let confirm = Confirm {
            target,
            survey: &looker.survey,
            facts: &facts,
            classes: &classes,
            contents: &contents,
            abroad: &abroad,
        };
        let (confirmed, dissolved) = confirm.check(found, &snapshot.objects);
        snapshot.findings = confirmed;
        strangers = abroad.facts;
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
    let shown = shown(&snapshot);
    looker.namer.name(&mut snapshot, &facts, &|object| named(object, shown.contains(&object.address)));
    words::describe(&mut snapshot, &facts, &strangers);
    findings::add_members(&mut snapshot);
    target.check_identity()?;
    tell_threads(&mut snapshot, &facts);
    target.limits().report(&mut snapshot.gaps);
    Ok(snapshot)
}

/// The objects that are shown with the findings: their own, and all others that their threads wait for or hold.
fn shown(snapshot: &Snapshot) -> HashSet<RemoteAddr> {
    let findings = || snapshot.findings.iter();
    let threads: HashSet<Lwp> = findings().flat_map(|it| it.threads.iter().chain(&it.behind)).copied().collect();
    let concerns = |object: &&SyncObject| {
        let waiters = object.waiters.iter().map(|waiter| waiter.lwp);
        waiters.chain(object.holders.iter().filter_map(|holder| holder.lwp)).any(|lwp| threads.contains(&lwp))
    };
    let theirs = snapshot.objects.iter().filter(concerns).map(|object| object.address);
    theirs.chain(findings().flat_map(|finding| finding.objects.iter().copied())).collect()
}

/// Gives each thread what it waits for and what it holds.
fn tell_threads(snapshot: &mut Snapshot, facts: &BTreeMap<Lwp, LwpFacts>) {
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
        // It may have gone from one call to another since the first look: what is told of it must fit.
        if let Some(call) = facts.get(&lwp).and_then(|facts| facts.syscall)
            && let SyscallFile::Inside { sp, pc, .. } = call
            && thread.syscall.is_some()
        {
            thread.syscall = call.call();
            (thread.sp, thread.pc) = (Some(sp), Some(pc));
        }
        thread.waits_for = waits.remove(&lwp);
        thread.holds = holds.remove(&lwp).unwrap_or_default();
    }
}
