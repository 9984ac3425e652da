//! A look with everything that a person wants to see of what is wrong: stacks, names, durations.

use super::calls;
use super::findings::{finding, known_by};
use super::groups::groups;
use super::history::History;
use super::look::object;
use super::names::LockNamer;
use super::outside::{Follower, add_kinds};
use super::owners::Owners;
use super::survey::read_objects;
use super::verdict::{place_of, spinning, verdict};
use super::watch::RunningThreads;
use super::words::owner_died;
use crate::host::Host;
use crate::look::{Look, Names, Scope, Stacks};
use crate::model::{Certainty, Finding, FindingKind, Gap, Member, Snapshot, SyncKind, SyncObject, SyncState, Thread};
use crate::runtimes::Context;
use crate::symbols::MappedObject;
use crate::target::{Target, TargetError};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// For how long a process is looked at where nothing is certain at once.
pub const USUAL_TIME: Duration = Duration::from_millis(300);

/// From one look to the next: twice in the usual time.
const PAUSE: Duration = Duration::from_millis(150);
/// For how long running threads are watched, where one look is enough.
const GLANCE: Duration = Duration::from_millis(30);

/// Threads whose stacks and durations are read where threads hang. More nobody reads.
const SHOWN: usize = 64;
/// Objects that get a name although nothing is wrong with them.
const NAMED: usize = 32;
/// Threads of which the time since they last ran is read.
const AGED: usize = 1024;

/// Why a process hangs: what its threads wait for, what is wrong with that, and the answer in a sentence.
pub fn explain(target: &dyn Target) -> Result<Snapshot, TargetError> {
    explain_for(target, USUAL_TIME)
}

/// The same from looks repeated for a time, unless the first one has the answer for certain.
pub fn explain_for(target: &dyn Target, time: Duration) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
    if let Some(denial) = target.denial() {
        return Err(TargetError::NoLocks { pid: target.pid(), why: denial.to_string() });
    }
    let throttled = target.throttled_us();
    let look = Look::new(target);
    let (mut snapshot, running) = repeat(&look, time)?;
    if !snapshot.findings.iter().any(|finding| finding.kind.is_hang()) && has_robust_mutexes(&look) {
        add_dead_owners(&look, &mut snapshot);
    }
    let hangs =
        snapshot.findings.iter().any(|finding| finding.kind.is_hang() && finding.certainty > Certainty::Possible);
    let shown: BTreeSet<Lwp> = match hangs {
        true => snapshot.findings.iter().flat_map(|finding| finding.threads.iter().copied()).take(SHOWN).collect(),
        false => snapshot.threads.iter().filter_map(|thread| thread.lwp).collect(),
    };
    add_stacks(&look, &mut snapshot, &shown, running);
    let ages = ages(target, &snapshot, &shown);
    for thread in &mut snapshot.threads {
        if let Some((waits, age)) = thread.waits_for.as_mut().zip(thread.lwp.and_then(|lwp| ages.get(&lwp))) {
            waits.since_ms = Some(*age);
        }
    }
    let watched = snapshot.threads.iter().filter(|thread| thread.watched.is_some());
    let watched: HashMap<Lwp, &Thread> = watched.filter_map(|thread| Some((thread.lwp?, thread))).collect();
    for finding in snapshot.findings.iter_mut().filter(|finding| finding.kind == FindingKind::LongChain) {
        let root = finding.threads.last().and_then(|root| watched.get(root)).copied();
        let spins = root.and_then(|root| root.watched.as_ref()?.spins.as_ref());
        if let Some(spin) = spins {
            finding.text += &format!(": it {}", spinning(spin));
        }
        if let Some(place) = root.and_then(place_of) {
            finding.text += &format!(", in {place}");
        }
    }
    calls::add_descriptors(target, &mut snapshot.threads);
    add_kinds(&mut snapshot);
    if !hangs {
        Follower::new(target, &Rc::new(Host::new(target.limits())), &[]).add_to(&mut snapshot);
        name_most_wanted(&look, &mut snapshot);
        snapshot.groups = groups(&snapshot, &ages);
    }
    if snapshot.target.core.is_some() {
        let what = "how long threads have waited, what running threads do over time, which signals have handlers";
        snapshot.gaps.push(Gap::whole(what, "a core does not store them"));
    }
    let mut verdict = verdict(&snapshot);
    let throttled = target.throttled_us().zip(throttled).map(|(now, then)| now.saturating_sub(then) / 1000);
    if let Some(ms @ 1..) = throttled {
        verdict.text +=
            &format!("; the CPU quota of its control group kept it from running for {ms} ms during the look");
    }
    snapshot.verdict = Some(verdict);
    target.limits().report(&mut snapshot.gaps);
    Ok(snapshot)
}

/// Looks until something is certain, or the time is over. Threads that run are watched meanwhile.
fn repeat(look: &Look<'_>, time: Duration) -> Result<(Snapshot, RunningThreads), TargetError> {
    let begun = Instant::now();
    let mut snapshot = look.take(Scope::Waited, Names::Findings)?;
    let mut running = RunningThreads::watch(look, &snapshot);
    let mut history = History::default();
    history.add(&snapshot);
    let is_settled = |snapshot: &Snapshot| {
        snapshot.target.core.is_some()
            || snapshot.findings.iter().any(Finding::is_certain_hang)
            || snapshot.threads.iter().all(|thread| thread.stop.is_some())
    };
    while !is_settled(&snapshot) {
        let left = time.saturating_sub(begun.elapsed());
        if left < PAUSE / 2 {
            break;
        }
        std::thread::sleep(left.min(PAUSE));
        running.collect();
        snapshot = look.take(Scope::Waited, Names::Findings)?;
        history.add(&snapshot);
    }
    if time.is_zero() && running.is_on() {
        std::thread::sleep(GLANCE);
    }
    Ok((history.finish(snapshot), running))
}

/// Stacks of the threads that are `shown`; of those that run, where samples found them.
fn add_stacks(look: &Look<'_>, snapshot: &mut Snapshot, shown: &BTreeSet<Lwp>, running: RunningThreads) {
    let mut stacks = Stacks::new(look).without_libc_lines();
    running.finish(look, snapshot, &mut stacks);
    let is_shown = |thread: &&Thread| thread.watched.is_none() && thread.lwp.is_some_and(|lwp| shown.contains(&lwp));
    let threads: Vec<Thread> = snapshot.threads.iter().filter(is_shown).cloned().collect();
    if !threads.is_empty() {
        stacks.read(&threads, &mut snapshot.gaps).report(&mut snapshot.gaps);
    }
    stacks.finish(snapshot);
}

/// Names the objects that most threads wait for.
fn name_most_wanted(look: &Look<'_>, snapshot: &mut Snapshot) {
    let mut wanted: Vec<(usize, RemoteAddr)> =
        snapshot.objects.iter().map(|object| (object.waiters.len(), object.address)).collect();
    wanted.sort_unstable_by_key(|(waiters, address)| (std::cmp::Reverse(*waiters), *address));
    let wanted: BTreeSet<RemoteAddr> = wanted.into_iter().take(NAMED).map(|(_, address)| address).collect();
    LockNamer::new(look).name(snapshot, &look.facts(), &|object| wanted.contains(&object.address));
    let names = snapshot.objects.iter().filter(|object| wanted.contains(&object.address));
    let names: HashMap<RemoteAddr, &String> =
        names.filter_map(|object| Some((object.address, object.name.as_ref()?))).collect();
    for waits in snapshot.threads.iter_mut().filter_map(|thread| thread.waits_for.as_mut()) {
        if waits.name.is_none() {
            waits.name = names.get(&waits.address).map(|name| (*name).clone());
        }
    }
}

/// For how long the threads that are shown and asleep have not run, in milliseconds.
fn ages(target: &dyn Target, snapshot: &Snapshot, shown: &BTreeSet<Lwp>) -> HashMap<Lwp, u64> {
    let asleep = snapshot.threads.iter().filter(|thread| thread.syscall.is_some());
    let lwps: Vec<Lwp> = asleep.filter_map(|thread| thread.lwp).filter(|lwp| shown.contains(lwp)).take(AGED).collect();
    let ages = target.idle_ms(&lwps);
    lwps.into_iter().zip(ages).filter_map(|(lwp, age)| Some((lwp, age?))).collect()
}

/// Whether the program can make robust mutexes: a library that does asks the C library for it; one that contains its C
/// library may. To look through all variables takes longer than all the rest.
fn has_robust_mutexes(look: &Look<'_>) -> bool {
    let objects = || look.objects.all().iter();
    let is_libc = |object: &MappedObject<'_>| object.module.library().is_libc();
    let asks =
        |object: &MappedObject<'_>| object.exports().is_some_and(|it| it.mentions("pthread_mutexattr_setrobust"));
    !objects().any(is_libc) || objects().filter(|object| !is_libc(object)).any(asks)
}

/// Robust mutexes whose owner died while nobody waits for them: known only where they are variables.
fn add_dead_owners(look: &Look<'_>, snapshot: &mut Snapshot) {
    let target = look.target;
    let known: BTreeSet<RemoteAddr> = snapshot.objects.iter().map(|object| object.address).collect();
    let owners = Owners::new(target, &snapshot.threads);
    let inner: HashSet<_> = snapshot.threads.iter().filter_map(|thread| thread.inner_lwp).collect();
    let is_thread = |lwp| inner.contains(&lwp);
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
            ..finding(FindingKind::OwnerDied, known_by(class.evidence), Vec::new(), vec![at], Vec::new())
        });
        snapshot.objects.push(object);
    }
}
