//! A look with everything that a person wants to see of what is wrong: stacks, names, durations.

use super::calls;
use super::findings::{finding, known_by};
use super::groups::groups;
use super::history::{History, tell_passing};
use super::knot::Spot;
use super::libc_work::add_lookups;
use super::look::{has_not_moved, object};
use super::names::{LockNamer, name_objects};
use super::outside::{add_kinds, follow};
use super::owners::Owners;
use super::pools::add_starving;
use super::spin::{add_holders, add_polls, add_spins_at_rest};
use super::strangers::strangers;
use super::survey::read_objects;
use super::task_ends::add_task_ends;
use super::verdict::{place_of, spinning, verdict};
use super::watch::RunningThreads;
use super::words::{NO_CPU, describe_unwoken, owner_died};
use crate::host::Host;
use crate::look::{Look, Names, Scope, Stacks, TaskScope, facts_now, library_of, tasks};
use crate::model::{
    Certainty, Finding, FindingKind, Gap, LanguageRuntime, Member, Snapshot, SyncKind, SyncObject, SyncState, Thread,
    ThreadState,
};
use crate::runtimes::{self, Context};
use crate::symbols::MappedObject;
use crate::target::{LwpFacts, Target, TargetError};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap, HashSet};
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
    explain_to(target, time, Extent::Answer)
}

/// The same with the stacks and groups of all threads, also of those that have nothing to do with a hang.
pub fn explain_whole(target: &dyn Target, time: Duration) -> Result<Snapshot, TargetError> {
    explain_to(target, time, Extent::Whole)
}

/// How much is read beside what the answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Answer,
    Whole,
}

fn explain_to(target: &dyn Target, time: Duration, extent: Extent) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
    if let Some(denial) = target.denial() {
        return Err(TargetError::NoLocks { pid: target.pid(), why: denial.to_string() });
    }
    let throttled = target.throttled_us();
    let begun = Instant::now();
    let look = Look::new(target);
    let (mut snapshot, running) = repeat(&look, time)?;
    if !snapshot.findings.iter().any(|finding| finding.kind.is_hang()) && has_robust_mutexes(&look) {
        add_dead_owners(&look, &mut snapshot);
    }
    let hangs =
        snapshot.findings.iter().any(|finding| finding.kind.is_hang() && finding.certainty > Certainty::Possible);
    let shown: BTreeSet<Lwp> = match hangs && extent == Extent::Answer {
        true => snapshot.findings.iter().flat_map(|finding| finding.threads.iter().copied()).take(SHOWN).collect(),
        false => snapshot.threads.iter().filter_map(|thread| thread.lwp).collect(),
    };
    add_stacks(&look, &mut snapshot, &shown, running);
    add_how(&mut snapshot);
    if !hangs {
        add_spins_at_rest(&look, &mut snapshot);
        add_polls(&look, &mut snapshot);
        add_holders(&look, &mut snapshot);
    }
    let is_all = describe_unwoken(target, &mut snapshot, &look.facts());
    if !hangs {
        add_starving(&look, &mut snapshot, is_all);
    }
    let ages = ages(target, &snapshot, &shown);
    for thread in &mut snapshot.threads {
        if let Some((waits, age)) = thread.waits_for.as_mut().zip(thread.lwp.and_then(|lwp| ages.get(&lwp))) {
            waits.since_ms = Some(*age);
        }
    }
    add_doing(&mut snapshot);
    tell_passing(&mut snapshot, begun.elapsed());
    calls::add_descriptors(target, &mut snapshot.threads);
    add_kinds(target, &mut snapshot);
    let led_to = if hangs { elsewhere(&snapshot) } else { follow(target, &mut snapshot) };
    snapshot.strangers = strangers(target, &led_to);
    if !hangs || extent == Extent::Whole {
        // The sockets of this machine are not those of a core.
        let host = target.identity().core.is_none().then(|| Host::new(target.limits()));
        add_lookups(&mut snapshot, host.as_ref());
        name_most_wanted(&look, &mut snapshot);
        snapshot.groups = groups(&snapshot, &ages);
    }
    if snapshot.target.core.is_some() {
        let what = "how long threads have waited, what running threads do over time, which signals have handlers, who has \
                    the other ends of pipes and sockets";
        snapshot.gaps.push(Gap::whole(what, "a core does not store them"));
    }
    snapshot.runtimes = runtimes::languages_of(target);
    look.add_tasks(&mut snapshot, TaskScope::Held);
    add_task_ends(target, &mut snapshot);
    tasks::add_stuck(&look, &mut snapshot);
    let mut verdict = verdict(&snapshot);
    if let Some(of_tasks) = tasks::verdict(&look, &snapshot, &verdict) {
        verdict = of_tasks;
    }
    // Of a language whose tasks are read, only of those that run something is not seen.
    let is_seen = |runtime: &LanguageRuntime| {
        let mut tasks = snapshot.tasks.iter().filter(|task| task.runtime == runtime.name).peekable();
        tasks.peek().is_some() && tasks.all(|task| task.state != ThreadState::Active || !task.frames.is_empty())
    };
    let unseen =
        snapshot.runtimes.iter().filter(|runtime| !verdict.text.contains(&runtime.unseen) && !is_seen(runtime));
    let unseen =
        unseen.map(|runtime| Gap::whole(runtime.unseen.clone(), format!("only {} itself knows", runtime.name)));
    let unseen: Vec<Gap> = unseen.collect();
    snapshot.gaps.extend(unseen);
    let throttled = target.throttled_us().zip(throttled).map(|(now, then)| now.saturating_sub(then) / 1000);
    if let Some(ms @ 1..) = throttled {
        verdict.text +=
            &format!("; the CPU quota of its control group kept it from running for {ms} ms during the look");
    }
    snapshot.verdict = Some(verdict);
    target.limits().report(&mut snapshot.gaps);
    Ok(snapshot)
}

/// Says of the threads that others wait for what samples and code found them doing.
fn add_doing(snapshot: &mut Snapshot) {
    let found = snapshot.threads.iter().filter(|thread| thread.watched.is_some() || thread.polls.is_some());
    let found: HashMap<Lwp, &Thread> = found.filter_map(|thread| Some((thread.lwp?, thread))).collect();
    for finding in snapshot.findings.iter_mut().filter(|finding| finding.kind == FindingKind::LongChain) {
        let Some(root) = finding.threads.last().and_then(|root| found.get(root)) else { continue };
        // One that was sampled has run since.
        if let Some(before) = finding.text.strip_suffix(NO_CPU).filter(|_| root.watched.is_some()) {
            finding.text = format!("{before}runs");
        }
        if let Some(spin) = root.spin() {
            finding.text += &format!(": it {}", spinning(spin));
        }
        if let Some(place) = place_of(root) {
            finding.text += &format!(", in {place}");
        }
    }
}

/// The threads of other processes that findings are about.
fn elsewhere(snapshot: &Snapshot) -> BTreeSet<Spot> {
    let members = snapshot.findings.iter().flat_map(|finding| &finding.members);
    let others = members.filter(|member| member.pid != snapshot.target.pid);
    others.filter_map(|member| Some(Spot { pid: member.pid, lwp: member.lwp? })).collect()
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
        if !is_unchanged(look, &snapshot) {
            snapshot = look.take(Scope::Waited, Names::Findings)?;
        }
        history.add(&snapshot);
    }
    if time.is_zero() && running.is_on() {
        std::thread::sleep(GLANCE);
    }
    Ok((history.finish(snapshot), running))
}

/// Whether another look would show the same: no thread has moved, and nobody else can have changed a lock.
fn is_unchanged(look: &Look<'_>, snapshot: &Snapshot) -> bool {
    let before = look.facts();
    let mut lwps = look.target.lwps().unwrap_or_default();
    lwps.sort_unstable();
    let is_shared =
        |object: &SyncObject| object.shared == Some(true) || object.holders.iter().any(|it| it.pid.is_some());
    if !lwps.iter().eq(before.keys()) || snapshot.objects.iter().any(is_shared) {
        return false;
    }
    let now: HashMap<Lwp, LwpFacts> = facts_now(look.target, &lwps);
    before.iter().all(|(lwp, before)| now.get(lwp).is_some_and(|now| has_not_moved(before, now)))
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

/// What threads wait for, as the functions tell that they are in.
fn add_how(snapshot: &mut Snapshot) {
    for thread in &mut snapshot.threads {
        let Some(waits) = &mut thread.waits_for else { continue };
        let outside_libc = thread.frames.iter().skip_while(|frame| library_of(frame) == Some("libc"));
        // A library may have no names for functions of its own.
        let outside_libc = outside_libc.filter(|frame| frame.function.is_some() || library_of(frame).is_none());
        waits.how = runtimes::waits_in(outside_libc.map_while(|frame| frame.function.as_deref()));
    }
}

/// Names the objects that most threads wait for.
fn name_most_wanted(look: &Look<'_>, snapshot: &mut Snapshot) {
    let mut wanted: Vec<(usize, RemoteAddr)> =
        snapshot.objects.iter().map(|object| (object.waiters.len(), object.address)).collect();
    wanted.sort_unstable_by_key(|(waiters, address)| (std::cmp::Reverse(*waiters), *address));
    let wanted: BTreeSet<RemoteAddr> = wanted.into_iter().take(NAMED).map(|(_, address)| address).collect();
    name_objects(look, snapshot, &|object| wanted.contains(&object.address));
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
    let asks = |object: &MappedObject<'_>| object.uses("pthread_mutexattr_setrobust");
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
