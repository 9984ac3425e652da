//! One look at threads, what they wait for, and who holds it.

use super::confirm::Confirm;
use super::look::{LockSearch, has_not_moved, idle};
use super::names::LockNamer;
use super::survey::Survey;
use super::unwoken::Sleepers;
use super::{calls, findings, words};
use crate::look::threads::{Collected, collect_threads};
use crate::look::{Look, Names, Scope, facts_now};
use crate::model::{Evidence, FindingKind, Gap, Holds, Snapshot, SyncKind, SyncObject, Thread, WaitsFor};
use crate::proc::SyscallFile;
use crate::runtimes::{self, Class, LibcLayout};
use crate::target::{LwpFacts, Target, TargetError};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often a look is taken again because a circle dissolved while it was looked at.
const TRIES: usize = 3;

/// The threads with what they wait for, and the objects of `scope` and `extra`.
pub(crate) fn collect(look: &Look<'_>, scope: Scope, names: Names, extra: &[Class]) -> Result<Snapshot, TargetError> {
    let target = look.target;
    let _look = target.limits().begin();
    let known = if names == Names::None { Vec::new() } else { registered(target, scope) };
    let extra: Vec<Class> = extra.iter().copied().chain(known).collect();
    let named = |object: &SyncObject, in_finding: bool| match names {
        Names::None => false,
        Names::All => true,
        Names::Findings => {
            scope >= Scope::Held || in_finding || extra.iter().any(|class| class.address == object.address)
        }
    };
    look.space.forget_walks();
    let Collected { mut snapshot, layout, musl, mut facts } = collect_threads(look)?;
    let libc = layout.as_ref().map(LibcLayout::Glibc).or(musl.as_ref().map(LibcLayout::Musl));
    if target.denial().is_some() {
        // The threads' gap says why.
        return Ok(snapshot);
    }
    if libc.is_none() && !runtimes::needs_no_libc(target) {
        let why = "without glibc or musl only the word of memory is known that a thread waits on";
        snapshot.gaps.push(Gap::whole("kinds and holders of locks", why));
    }
    let survey = Survey::new(look, libc, &snapshot.threads);
    let mut search = LockSearch { look, survey, namer: LockNamer::new(look), scope, extra: &extra };
    let mut strangers = BTreeMap::new();
    for attempt in 0..TRIES {
        let mut seen = search.look(&snapshot.threads, &facts);
        snapshot.objects = std::mem::take(&mut seen.objects).into_values().collect();
        let sleepers = Sleepers::new(target, &facts, &snapshot.threads);
        let found = findings::find(&snapshot.objects, &sleepers);
        let is_all = found.iter().any(|finding| finding.kind.is_unwoken()) && sleepers.is_all(&snapshot.objects);
        let confirm = Confirm { context: &search.survey.context, facts: &facts, seen: &seen, is_all };
        let dissolved;
        (snapshot.findings, dissolved) = confirm.check(found, &snapshot.objects);
        strangers = seen.others.facts;
        if !dissolved {
            break;
        }
        if attempt + 1 == TRIES {
            let why = "the threads went on during each look, so there was no deadlock";
            snapshot.gaps.push(Gap::whole("circles of waiting threads", why));
            // What was found goes with the facts it was found from.
            break;
        }
        look.space.forget_walks();
        let lwps: Vec<Lwp> = facts.keys().copied().collect();
        facts = facts_now(target, &lwps);
    }
    let shown = shown(&snapshot);
    search.namer.name(&mut snapshot, &facts, &|object| named(object, shown.contains(&object.address)));
    let moved = moved(target, &snapshot, &facts);
    tell_threads(&mut snapshot, &facts);
    let roots: HashSet<Lwp> = roots(&snapshot).collect();
    let is_root = |thread: &&mut Thread| thread.lwp.is_some_and(|lwp| roots.contains(&lwp));
    calls::add_descriptors(target, snapshot.threads.iter_mut().filter(is_root));
    words::describe(&mut snapshot, &words::Seen { facts: &facts, strangers: &strangers, moved: &moved });
    let _ = words::describe_unwoken(target, &mut snapshot, &facts);
    findings::add_members(&mut snapshot);
    target.check_identity()?;
    look.keep_facts(facts);
    target.limits().report(&mut snapshot.gaps);
    Ok(snapshot)
}

/// Threads at the end of chains.
fn roots(snapshot: &Snapshot) -> impl Iterator<Item = Lwp> {
    let chains = snapshot.findings.iter().filter(|finding| finding.kind == FindingKind::LongChain);
    chains.filter_map(|finding| finding.threads.last().copied())
}

/// Which of the roots have gone on since the look began: what they do now is not what they did when they held what others
/// wait for.
fn moved(target: &dyn Target, snapshot: &Snapshot, facts: &BTreeMap<Lwp, LwpFacts>) -> HashSet<Lwp> {
    // The first look at its threads tells who sleeps, and what they hold may be of a later one.
    let slept = snapshot.threads.iter().filter(|thread| thread.syscall.is_some());
    let slept: HashSet<Lwp> = slept.filter_map(|thread| thread.lwp).collect();
    let is_asleep = |facts: &LwpFacts| facts.syscall.is_some_and(|call| call.call().is_some());
    let asleep: Vec<Lwp> =
        roots(snapshot).filter(|lwp| slept.contains(lwp) || facts.get(lwp).is_some_and(is_asleep)).collect();
    let now: HashMap<Lwp, LwpFacts> = facts_now(target, &asleep);
    let rests = |lwp: &Lwp| {
        facts.get(lwp).zip(now.get(lwp)).is_some_and(|(then, now)| is_asleep(then) && has_not_moved(then, now))
    };
    asleep.into_iter().filter(|lwp| !rests(lwp)).collect()
}

/// What the agent knows, of which no variable tells.
fn registered(target: &dyn Target, scope: Scope) -> Vec<Class> {
    let tracked = if scope == Scope::All { crate::table::registered(target) } else { Vec::new() };
    let class = |(address, kind)| idle(kind, runtimes::counted(kind).unwrap_or_default(), address, Evidence::Recorded);
    tracked.into_iter().map(class).collect()
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
                    how: None,
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
