//! Looks at processes again and again, without stopping any, and tells of trouble that they get into.
//!
//! Two stages. What is cheap is read at every look: how often each thread has run, and what it is in ([`crate::target`]'s pulse).
//! What is dear is read only of processes in which something has not moved: what their threads wait for, across all of them at once,
//! as [`machine`](super::machine) does; then one explanation of each process of which that says that something is wrong, as `why`
//! gives it. Trouble is told only if its threads have not run since the look before, or if two looks have found the same.

mod judge;
mod process;

use super::machine::machine_of;
use super::waits::{USUAL_TIME, explain_for};
use crate::host;
use crate::model::{
    Certainty, Gap, ProcessFigures, SCHEMA, Snapshot, TroubleKind, Verdict, VerdictKind, WatchEvent, WatchEventKind,
    WatchFigures, WatchedProcess,
};
use crate::sys::clock::all_own_cpu;
use crate::target::{Live, Target, name_and_start, pulse};
use crate::{Lwp, Pid};
use judge::{Judgement, judge, lock_waits};
use process::{Process, Suspicion, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a watch is kept.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// For how long a thread stands that is told of though it may go on: behind a lock, in D state, without a CPU.
    pub stuck: Duration,
    /// The part of a CPU that closer looks may take at which nothing has to be confirmed.
    pub share: f64,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { stuck: Duration::from_secs(30), share: 0.005 }
    }
}

/// CPU time that may be used before any was saved, and that can be saved up.
const AT_FIRST: Duration = Duration::from_millis(100);
const SAVED: Duration = Duration::from_millis(500);
/// After this time a look begins no other explanation that can wait.
const MOST_BEHIND: Duration = Duration::from_secs(2);

/// A watch of some or all processes.
pub struct Watcher {
    options: WatchOptions,
    looks: u64,
    closer_looks: u64,
    processes: BTreeMap<Pid, Process>,
    found: BTreeMap<TroubleKind, u64>,
    cpu: Duration,
    closer_cpu: Duration,
    /// CPU time that closer looks may take beside what has to be confirmed.
    allowance: Duration,
    last: Option<Instant>,
    /// Processes that are to be explained when there is time for it.
    pending: BTreeSet<Pid>,
    gaps: Vec<Gap>,
}

impl Watcher {
    /// Begins; looks at nothing yet.
    pub fn new(options: WatchOptions) -> Self {
        let (looks, closer_looks, processes, found, cpu, closer_cpu) = Default::default();
        let (last, pending, gaps) = Default::default();
        Self {
            options,
            looks,
            closer_looks,
            processes,
            found,
            cpu,
            closer_cpu,
            allowance: AT_FIRST,
            last,
            pending,
            gaps,
        }
    }

    /// Looks at those processes that are `wanted`, of which it is told the pid, the name of the main thread and when it was started.
    /// Gives what has happened since the look before.
    pub fn look(&mut self, wanted: &mut dyn FnMut(Pid, &str, u64) -> bool) -> Vec<WatchEvent> {
        let cpu = all_own_cpu();
        let now = Instant::now();
        self.looks += 1;
        let passed = self.last.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.allowance = (self.allowance + passed.mul_f64(self.options.share)).min(SAVED);
        self.last = Some(now);
        let mut events = self.read(now, wanted);
        let closer = all_own_cpu();
        self.look_closer(now, &mut events);
        let after = all_own_cpu();
        self.closer_cpu += after.saturating_sub(closer);
        self.cpu += after.saturating_sub(cpu);
        for event in events.iter().filter(|event| event.event == WatchEventKind::Found) {
            *self.found.entry(event.kind).or_default() += 1;
        }
        events
    }

    /// What is cheap, of all processes.
    fn read(&mut self, now: Instant, wanted: &mut dyn FnMut(Pid, &str, u64) -> bool) -> Vec<WatchEvent> {
        let own = Pid::me();
        let mut before = std::mem::take(&mut self.processes);
        let mut events = Vec::new();
        for pid in host::processes().filter(|pid| *pid != own) {
            let known = before.remove(&pid);
            let thread = |start: u64, lwp: Lwp| {
                // The number may be used by another one by now.
                let known = known.as_ref().filter(|known| known.about.start_time == start);
                Some(known?.threads.get(&lwp)?.pulse)
            };
            let pulse = pulse(pid, self.looks, &mut |name, start| wanted(pid, name, start), &thread);
            let start = pulse.as_ref().map(|pulse| pulse.start_time);
            let (same, gone): (Option<Process>, Option<Process>) = match known {
                Some(known) if Some(known.about.start_time) == start => (Some(known), None),
                other => (None, other),
            };
            events.extend(gone.iter().flat_map(|gone| self.ended(gone)));
            let Some(pulse) = pulse else { continue };
            let mut process = same.unwrap_or_else(|| Process::new(pid, &pulse, now, self.looks));
            process.update(pulse, now, self.options.stuck);
            self.processes.insert(pid, process);
        }
        events.extend(before.values().flat_map(|gone| self.ended(gone)));
        events
    }

    /// What is dear, where something does not move.
    fn look_closer(&mut self, now: Instant, events: &mut Vec<WatchEvent>) {
        let stuck = self.options.stuck;
        let mut wanted: BTreeSet<Pid> = BTreeSet::new();
        let mut explain: BTreeSet<Pid> = BTreeSet::new();
        let may_wander = !self.allowance.is_zero();
        for (pid, process) in &self.processes {
            let Suspicion { words, others, old, stopped } = process.suspicion(now, stuck);
            if words || (others || old) && may_wander {
                wanted.insert(*pid);
            }
            let is_stopped = [TroubleKind::Stopped, TroubleKind::Traced, TroubleKind::Frozen];
            let is_known = is_stopped.iter().any(|kind| process.troubles.contains_key(kind));
            let is_deep = !process.unkillable(now, stuck).is_empty();
            if stopped && !is_known || is_deep && !process.troubles.contains_key(&TroubleKind::Unkillable) {
                explain.insert(*pid);
            }
            if process.troubles.iter().any(|(kind, trouble)| has_changed(process, *kind, trouble)) {
                explain.insert(*pid);
            }
            let seen_once = process.doubtful.values().any(|(look, _)| *look + 1 == self.looks);
            if seen_once {
                explain.insert(*pid);
            }
        }
        let (begun, mut others_only) = (all_own_cpu(), wanted.clone());
        if !wanted.is_empty() {
            self.closer_looks += 1;
            let (machine, owed) = machine_of(wanted.iter().copied());
            for seen in &machine.processes_to_see {
                let is_old = self.processes.get(&seen.pid).is_some_and(|it| it.suspicion(now, stuck).old);
                match worth_of(&seen.verdict, owed.contains(&seen.pid)) {
                    Worth::Now => drop(explain.insert(seen.pid)),
                    Worth::IfOld if is_old => drop(self.pending.insert(seen.pid)),
                    _ => {}
                }
            }
            self.gaps = machine.gaps;
        }
        for pid in &wanted {
            if let Some(process) = self.processes.get_mut(pid) {
                if process.suspicion(now, stuck).words {
                    others_only.remove(pid);
                }
                process.was_looked_at(now, self.looks, stuck);
            }
        }
        if !others_only.is_empty() {
            self.spend(all_own_cpu().saturating_sub(begun));
        }
        for pid in explain.iter().copied() {
            self.explain(pid, now, USUAL_TIME, events);
        }
        self.catch_up(now, &mut explain, events);
        self.wander(now, &explain, events);
        self.tell_starving(now, events);
    }

    /// Explains processes in which threads have stood for long: one at least, and more as far as there is time for it. A whole
    /// machine may have stood for long when the watch is that old.
    fn catch_up(&mut self, now: Instant, explained: &mut BTreeSet<Pid>, events: &mut Vec<WatchEvent>) {
        let mut is_first = true;
        while let Some(pid) = self.pending.pop_first() {
            if !explained.insert(pid) {
                continue;
            }
            let begun = all_own_cpu();
            self.explain(pid, now, USUAL_TIME, events);
            self.spend(all_own_cpu().saturating_sub(begun));
            if !is_first && self.allowance.is_zero() || now.elapsed() > MOST_BEHIND {
                break;
            }
            is_first = false;
        }
    }

    fn spend(&mut self, cpu: Duration) {
        self.allowance = self.allowance.saturating_sub(cpu);
    }

    /// A closer look at the process that has had none for longest, as far as there is time for it: at what no pulse tells, such as
    /// tasks that hang, pools that starve, and who waits for which lock.
    fn wander(&mut self, now: Instant, but: &BTreeSet<Pid>, events: &mut Vec<WatchEvent>) {
        if self.allowance.is_zero() {
            return;
        }
        let worth = |process: &&Process| !process.is_denied && (process.has_tasks || process.has_sleepers());
        let waiting = self.processes.values().filter(worth).filter(|it| !but.contains(&it.about.pid));
        let oldest = waiting.filter(|it| it.looked_at < self.looks).min_by_key(|it| it.looked_at);
        let Some(pid) = oldest.map(|process| process.about.pid) else { return };
        let begun = all_own_cpu();
        self.explain(pid, now, Duration::ZERO, events);
        self.spend(all_own_cpu().saturating_sub(begun));
    }

    /// Explains one process, and tells what has changed of its trouble.
    fn explain(&mut self, pid: Pid, now: Instant, time: Duration, events: &mut Vec<WatchEvent>) {
        let looks = self.looks;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        self.closer_looks += 1;
        process.looked_at = looks;
        let Some(snapshot) = explained(pid, process.about.start_time, time) else { return };
        process.has_tasks = !snapshot.task_runtimes.is_empty();
        process.locks = lock_waits(&snapshot);
        let found = judge(process, &snapshot, now, self.options.stuck);
        let stands =
            |members: &BTreeSet<Lwp>| !members.is_empty() && process.stand(members) && stand_now(process, members);
        let found: Vec<(Judgement, bool)> = found.into_iter().map(|it| (it.clone(), stands(&it.members))).collect();
        let kinds: BTreeSet<TroubleKind> = found.iter().map(|(judgement, _)| judgement.kind).collect();
        for (judgement, stands) in found {
            let seen_before = process
                .doubtful
                .get(&judgement.kind)
                .is_some_and(|(look, members)| *look < looks && *members == judgement.members);
            if !stands && !seen_before {
                process.doubtful.insert(judgement.kind, (looks, judgement.members));
                continue;
            }
            process.doubtful.remove(&judgement.kind);
            events.extend(tell(process, judgement, now, looks));
        }
        process.doubtful.retain(|kind, (look, _)| kinds.contains(kind) && *look == looks);
        let over: Vec<TroubleKind> = process.troubles.keys().filter(|kind| !kinds.contains(kind)).copied().collect();
        for kind in over {
            // One look of no length does not show all.
            let is_over = !time.is_zero() || has_changed(process, kind, &process.troubles[&kind]);
            if kind != TroubleKind::StarvedOfCpu && is_over {
                events.extend(dissolved(process, kind, now, looks));
            }
        }
    }

    fn tell_starving(&mut self, now: Instant, events: &mut Vec<WatchEvent>) {
        let looks = self.looks;
        for process in self.processes.values_mut() {
            if process.starves_no_more() {
                events.extend(dissolved(process, TroubleKind::StarvedOfCpu, now, looks));
                continue;
            }
            if process.troubles.contains_key(&TroubleKind::StarvedOfCpu) {
                continue;
            }
            let Some((members, text, longest)) = process.starves(now, self.options.stuck) else { continue };
            let (way_out, findings) = Default::default();
            let certainty = Certainty::Certain;
            let kind = TroubleKind::StarvedOfCpu;
            let judgement = Judgement { kind, certainty, text, way_out, members, findings, longest };
            events.extend(tell(process, judgement, now, looks));
        }
    }

    /// What is told of the trouble of a process that has ended.
    fn ended(&self, process: &Process) -> Vec<WatchEvent> {
        let now = Instant::now();
        let end = |trouble: &Trouble| over(trouble, WatchEventKind::Ended, now, self.looks);
        process.troubles.values().map(end).collect()
    }

    /// Whether any process is there to be watched.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// How many processes may not be looked into.
    pub fn not_seen(&self) -> usize {
        self.processes.values().filter(|process| process.is_denied).count()
    }

    /// The trouble that stands.
    pub fn troubles(&self) -> impl Iterator<Item = &WatchEvent> {
        self.processes.values().flat_map(|process| process.troubles.values()).map(|trouble| &trouble.event)
    }

    /// What is known after the last look.
    pub fn figures(&self) -> WatchFigures {
        let of = |process: &Process| ProcessFigures {
            process: process.about.clone(),
            threads: process.states(),
            runnable: process.runnable,
            running: process.running,
            locks: process.locks.clone(),
            troubles: process.troubles.values().map(|trouble| trouble.event.clone()).collect(),
        };
        WatchFigures {
            looks: self.looks,
            closer_looks: self.closer_looks,
            found: TroubleKind::ALL.map(|kind| (kind, self.found.get(&kind).copied().unwrap_or(0))).to_vec(),
            cpu_us: self.cpu.as_micros() as u64,
            closer_cpu_us: self.closer_cpu.as_micros() as u64,
            processes: self.processes.values().map(of).collect(),
            not_seen: self.not_seen(),
            gaps: self.gaps.clone(),
        }
    }
}

/// Whether what `machine` says of a process is worth an explanation.
enum Worth {
    Now,
    /// Every busy program has threads that wait for a moment: only if they have stood for long.
    IfOld,
    Never,
}

fn worth_of(verdict: &Verdict, is_owed: bool) -> Worth {
    match verdict.kind {
        VerdictKind::Deadlock | VerdictKind::NobodyLeft if verdict.certainty > Certainty::Possible => Worth::Now,
        VerdictKind::Idle | VerdictKind::Busy => Worth::Never,
        VerdictKind::OtherProcess if !is_owed => Worth::Never,
        _ => Worth::IfOld,
    }
}

/// Whether trouble may be over, or not be what it was.
fn has_changed(process: &Process, kind: TroubleKind, trouble: &Trouble) -> bool {
    match kind {
        TroubleKind::Stopped | TroubleKind::Traced => process.stopped() != trouble.members,
        TroubleKind::StarvedOfCpu => false,
        // Tasks have no threads that stand.
        _ => !trouble.members.is_empty() && !process.stand(&trouble.members),
    }
}

/// Whether these threads still have not run since they were read.
fn stand_now(process: &Process, lwps: &BTreeSet<Lwp>) -> bool {
    let WatchedProcess { pid, start_time, .. } = process.about;
    let Some(now) = pulse(pid, 0, &mut |_, start| start == start_time, &|_, _| None) else { return false };
    lwps.iter().all(|lwp| {
        let (now, before) = (now.threads.iter().find(|it| it.lwp == *lwp), process.threads.get(lwp));
        now.zip(before).is_some_and(|(now, before)| now.is_still_since(&before.pulse))
    })
}

/// The explanation of the process that has this number since then.
fn explained(pid: Pid, start_time: u64, time: Duration) -> Option<Snapshot> {
    let live = Live::open(pid).ok()?;
    if live.leader_stat().start_time != start_time {
        return None;
    }
    let _look = live.limits().begin();
    let snapshot = explain_for(&live, time).ok()?;
    live.check_identity().ok()?;
    Some(snapshot)
}

/// Notes trouble, and tells of it unless it was told.
fn tell(process: &mut Process, judgement: Judgement, now: Instant, look: u64) -> Option<WatchEvent> {
    let Judgement { kind, certainty, text, way_out, members, findings, longest } = judgement;
    let known = process.troubles.get(&kind);
    let is_known = known.is_some_and(|known| members.is_subset(&known.members) || kind == TroubleKind::Behind);
    let since = known.map_or(now.checked_sub(longest).unwrap_or(now), |known| known.since);
    let event = WatchEvent {
        schema: SCHEMA,
        event: WatchEventKind::Found,
        at_ms: now_ms(),
        look,
        process: process.about.clone(),
        kind,
        certainty,
        text,
        way_out,
        restart_helps: kind.restart_helps(),
        for_ms: longest.as_millis() as u64,
        threads: members.iter().copied().collect(),
        findings,
        snapshot: None,
    };
    process.troubles.insert(kind, Trouble { event: event.clone(), since, members });
    (!is_known).then_some(event)
}

fn dissolved(process: &mut Process, kind: TroubleKind, now: Instant, look: u64) -> Option<WatchEvent> {
    let trouble = process.troubles.remove(&kind)?;
    Some(over(&trouble, WatchEventKind::Dissolved, now, look))
}

fn over(trouble: &Trouble, event: WatchEventKind, now: Instant, look: u64) -> WatchEvent {
    let for_ms = now.saturating_duration_since(trouble.since).as_millis() as u64;
    WatchEvent { event, at_ms: now_ms(), look, for_ms, ..trouble.event.clone() }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What is watched, of an event.
impl WatchedProcess {
    /// Whether it still is there.
    pub fn is_alive(&self) -> bool {
        name_and_start(self.pid).is_some_and(|(_, start)| start == self.start_time)
    }
}
