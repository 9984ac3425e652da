//! All processes of the machine in one look: those that are worth another.

use super::waits::{Net, Stuck, circles_of, count, glance, rests, waits_for_child, waits_of};
use crate::host::{self, Host};
use crate::limits::Limits;
use crate::model::{
    Certainty, Finding, FindingKind, Gap, Machine, OutsideKind, OutsideWait, ProcessToSee, Snapshot, Verdict,
    VerdictKind,
};
use crate::proc::{KernelState, SyscallFile};
use crate::sys::clock::all_own_cpu;
use crate::target::{KernelFacts, Live, LwpFacts, Target, TargetError, calls_of_all};
use crate::{Lwp, Pid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// CPU time after which no more processes are opened for their locks.
const MOST_TIME: Duration = Duration::from_secs(10);
/// CPU time for one of them: a process that is made to keep the tool busy does not hide the others.
const TIME_OF_ONE: Duration = Duration::from_secs(1);
/// How long a thread must be in a state in which no signal wakes it to be worth a look.
const LONG_MS: u64 = 1000;
/// Processes that must wait for one that is not wrong itself to be worth a look.
const MANY: usize = 3;
/// From one look at a process to the next: what only one look shows is not told.
const PAUSE: Duration = Duration::from_millis(100);

/// Which processes are looked at, and what of them is told.
#[derive(Default)]
pub struct MachineOptions<'a> {
    /// Only processes of which this says so.
    pub wanted: Option<&'a dyn Fn(Pid) -> bool>,
    /// Also those that are idle or wait for another process.
    pub all: bool,
}

/// Looks at all processes that can be seen, without stopping any: at what their threads wait for outside of the process, and
/// at the locks of those whose threads wait on locks.
pub fn machine(options: &MachineOptions<'_>) -> Machine {
    let own = Pid(std::process::id() as i32);
    let wanted = |pid: &Pid| *pid != own && options.wanted.is_none_or(|wanted| wanted(*pid));
    survey(host::processes().filter(wanted), calls_of_all().unwrap_or_default(), options.all).0
}

/// The same of a few processes: tells all that each of them does, and to which of them another process owes something.
pub(super) fn machine_of(pids: impl Iterator<Item = Pid>) -> (Machine, BTreeSet<Pid>) {
    survey(pids, HashMap::new(), true)
}

fn survey(
    pids: impl Iterator<Item = Pid>,
    calls: HashMap<(Pid, Lwp), SyscallFile>,
    all: bool,
) -> (Machine, BTreeSet<Pid>) {
    let begun = all_own_cpu();
    let limits = Limits::default();
    let _look = limits.begin();
    let host = Rc::new(Host::new(&limits));
    let mut survey = MachineSurvey::new(&host, calls);
    for pid in pids {
        survey.add(pid);
    }
    let surveyed = all_own_cpu();
    survey.open_suspects(surveyed + MOST_TIME);
    // Other processes are opened by way of our own.
    if let Ok(eye) = Live::open(Pid::me()) {
        survey.find_circles(&eye.with_limits(&limits));
    }
    let owed = std::mem::take(&mut survey.owed);
    let mut machine = survey.finish(all);
    limits.report(&mut machine.gaps);
    machine.descriptors = host.descriptors();
    machine.survey_us = (surveyed - begun).as_micros() as u64;
    machine.locks_us = (all_own_cpu() - surveyed).as_micros() as u64;
    (machine, owed)
}

struct MachineSurvey {
    machine: Machine,
    /// All threads, and who waits for whom.
    net: Net,
    /// What was found of processes.
    found: BTreeMap<Pid, ProcessToSee>,
    /// Processes whose locks are to be read.
    suspects: Vec<Pid>,
    /// Processes whose threads were looked at.
    surveyed: Vec<Pid>,
    /// Which process waits for which.
    edges: BTreeMap<Pid, BTreeSet<Pid>>,
    /// What threads sleep in, as far as the kernel tells that of all at once.
    calls: HashMap<(Pid, Lwp), SyscallFile>,
    /// Processes that wait for what another one owes them.
    owed: BTreeSet<Pid>,
    /// Why processes may not be looked into.
    denied: Vec<String>,
    left_out: usize,
}

impl MachineSurvey {
    fn new(host: &Rc<Host>, calls: HashMap<(Pid, Lwp), SyscallFile>) -> Self {
        let (machine, found, suspects, edges, surveyed, owed) = Default::default();
        Self {
            machine,
            net: Net::new(host),
            found,
            suspects,
            edges,
            surveyed,
            calls,
            owed,
            denied: Vec::new(),
            left_out: 0,
        }
    }

    /// Looks at the threads of one process.
    fn add(&mut self, pid: Pid) {
        let live = match Live::open_listed(pid) {
            Ok(live) => live,
            Err(TargetError::KernelThread(_) | TargetError::Zombie(..) | TargetError::NoSuchProcess(_)) => return,
            Err(error) => return self.denied.push(error.to_string()),
        };
        let Ok(lwps) = live.lwps() else { return };
        let facts = self.facts_of(&live, &lwps);
        self.machine.processes += 1;
        self.machine.threads += facts.len();
        if let Some(denial) = live.denial() {
            self.denied.push(denial.to_string());
            return;
        }
        let deep: Vec<Lwp> = facts.iter().filter(|it| is_deep(it)).map(|facts| facts.lwp).collect();
        let ages = live.idle_ms(&deep);
        if let Some(oldest) = ages.into_iter().flatten().max().filter(|age| *age >= LONG_MS) {
            let text = format!(
                "{} inside the kernel where no signal wakes it (D state), for {} s",
                count(deep.len(), "thread is", "threads are"),
                oldest / 1000
            );
            self.tell(
                pid,
                Verdict { kind: VerdictKind::Unkillable, certainty: Certainty::Certain, text, way_out: None },
                Vec::new(),
            );
        }
        let is_suspect =
            |facts: &LwpFacts| facts.state.is_stopped() || facts.syscall.is_some_and(|call| call.is_futex());
        if facts.iter().any(is_suspect) {
            self.suspects.push(pid);
        }
        self.surveyed.push(pid);
        self.net.add(&live, facts);
    }

    /// What tells where threads wait. Of those that wait for a time or a signal the call says all: most threads do.
    fn facts_of(&self, live: &Live, lwps: &[Lwp]) -> Vec<LwpFacts> {
        let is_stopped = live.leader_stat().state.is_stopped();
        let rests = |call: &SyscallFile| !is_stopped && call.call().is_some_and(|call| rests(&call));
        let known = |lwp: &Lwp| self.calls.get(&(live.pid(), *lwp)).copied();
        let unknown: Vec<Lwp> = lwps.iter().filter(|lwp| known(lwp).is_none()).copied().collect();
        let read = unknown.iter().copied().zip(live.wait_calls(&unknown));
        let calls = lwps.iter().map(|lwp| (*lwp, known(lwp))).filter(|(_, call)| call.is_some()).chain(read);
        let (mut facts, mut others) = (Vec::with_capacity(lwps.len()), Vec::new());
        for (lwp, call) in calls {
            match call.filter(rests) {
                Some(_) => facts.push(LwpFacts { syscall: call, ..LwpFacts::bare(lwp, KernelState::Sleeping) }),
                None => others.push(lwp),
            }
        }
        facts.extend(live.brief_facts(&others).into_iter().flatten());
        facts
    }

    /// Follows waits from process to process, and tells of those that are in a circle or that nobody is left to end.
    fn find_circles(&mut self, eye: &Live) {
        // Who waits for a process that is none of those that were asked for.
        self.net.explore(eye);
        let stuck = self.net.stuck();
        for pid in std::mem::take(&mut self.surveyed) {
            self.tell_waits(eye, &stuck, pid);
        }
    }

    fn tell_waits(&mut self, eye: &Live, stuck: &Stuck, pid: Pid) {
        let circles = if stuck.concerns(pid) { circles_of(eye, &self.net, stuck, pid) } else { Vec::new() };
        for finding in circles {
            let kind = match finding.kind {
                FindingKind::ProcessCircle => VerdictKind::Deadlock,
                _ => VerdictKind::NobodyLeft,
            };
            let circle = others_in(pid, &finding);
            self.tell(pid, Verdict { kind, certainty: finding.certainty, text: finding.text, way_out: None }, circle);
        }
        let waits = waits_of(&self.net, pid);
        if waits.iter().any(|(.., wait)| wait.is_owed()) {
            self.owed.insert(pid);
        }
        // Every shell waits for its child, or for its terminal: that makes no process worth a look.
        let is_usual = |wait: &OutsideWait| matches!(wait.kind, OutsideKind::Child | OutsideKind::Terminal);
        let edges = waits.iter().filter(|(.., wait)| !is_usual(wait)).flat_map(|it| &it.2.partners);
        let partners: BTreeSet<Pid> = edges.map(|partner| partner.pid).collect();
        if !partners.is_empty() {
            self.edges.entry(pid).or_default().extend(partners);
        }
        if let [(_, doing, wait), rest @ ..] = waits.as_slice() {
            let more = match rest.len() {
                0 => String::new(),
                more => format!(
                    "; {}",
                    count(more, "more thread waits for another process", "more threads wait for others")
                ),
            };
            let text = format!("it is {doing}: {}{more}", wait.text);
            self.tell(
                pid,
                Verdict { kind: VerdictKind::OtherProcess, certainty: Certainty::Likely, text, way_out: None },
                Vec::new(),
            );
        }
    }

    /// Notes what a process does, unless something worse is known of it.
    fn tell(&mut self, pid: Pid, verdict: Verdict, circle: Vec<Pid>) {
        let name = host::name_of(pid).unwrap_or_default();
        let entry = ProcessToSee { pid, name, verdict, circle, behind: Vec::new() };
        match self.found.get_mut(&pid) {
            Some(known) if known.verdict.kind <= entry.verdict.kind => {}
            Some(known) => *known = entry,
            None => drop(self.found.insert(pid, entry)),
        }
    }

    /// Reads the locks of processes whose threads wait on locks, until the time is over. What may pass is looked at twice.
    fn open_suspects(&mut self, until: Duration) {
        let mut passing = Vec::new();
        for pid in std::mem::take(&mut self.suspects) {
            if all_own_cpu() > until {
                self.left_out += 1;
                continue;
            }
            let Some(snapshot) = self.glance(pid) else { continue };
            self.machine.opened += 1;
            let Some(verdict) = snapshot.verdict.clone() else { continue };
            self.net.add_locks(&snapshot);
            let circle = circle_of(&snapshot);
            match verdict.certainty {
                Certainty::Certain if verdict.kind != VerdictKind::Behind => self.tell(pid, verdict, circle),
                _ => passing.push((pid, verdict, circle)),
            }
        }
        if passing.iter().any(|(_, verdict, _)| is_wrong(verdict.kind)) {
            std::thread::sleep(PAUSE);
        }
        for (pid, first, circle) in passing {
            let again = if is_wrong(first.kind) { self.glance(pid) } else { None };
            let again = again.and_then(|snapshot| snapshot.verdict);
            if again.as_ref().is_some_and(|again| again.kind == first.kind) || !is_wrong(first.kind) {
                self.tell(pid, again.unwrap_or(first), circle);
            }
        }
    }

    fn glance(&self, pid: Pid) -> Option<Snapshot> {
        let live = Live::open(pid).ok()?;
        let _look = live.limits().begin_within(TIME_OF_ONE);
        glance(&live)
    }

    fn finish(mut self, all: bool) -> Machine {
        let behind = self.behind();
        for (pid, waiting) in &behind {
            if waiting.len() >= MANY && !self.found.contains_key(pid) {
                let verdict = self.glance(*pid).and_then(|snapshot| snapshot.verdict);
                verdict.into_iter().for_each(|verdict| self.tell(*pid, verdict, Vec::new()));
            }
        }
        let mut processes: Vec<ProcessToSee> = self.found.into_values().collect();
        for process in &mut processes {
            let members: Vec<Pid> = std::iter::once(process.pid).chain(process.circle.iter().copied()).collect();
            let waiting = members.iter().filter_map(|pid| behind.get(pid)).flatten();
            let waiting: BTreeSet<Pid> = waiting.copied().filter(|pid| !members.contains(pid)).collect();
            process.behind = waiting.into_iter().collect();
        }
        processes.retain(|it| all || is_wrong(it.verdict.kind) || it.behind.len() >= MANY);
        processes.sort_by_key(|it| (rank(it), it.verdict.kind, std::cmp::Reverse(it.behind.len()), it.pid));
        // Each process of a circle tells of the same one.
        let mut told: BTreeSet<BTreeSet<Pid>> = BTreeSet::new();
        processes.retain(|it| {
            let members: BTreeSet<Pid> = std::iter::once(it.pid).chain(it.circle.iter().copied()).collect();
            members.len() == 1 || told.insert(members)
        });
        let mut machine = self.machine;
        machine.processes_to_see = processes;
        machine.not_seen = self.denied.len();
        if let Some(why) = self.denied.first() {
            machine.gaps.push(Gap::whole(count(self.denied.len(), "process", "processes"), why));
        }
        if self.left_out > 0 {
            let what = format!("locks of {}", count(self.left_out, "process", "processes"));
            machine.gaps.push(Gap::whole(what, "the look has used all its time"));
        }
        machine
    }

    /// Which processes wait for each one, directly or not.
    fn behind(&self) -> BTreeMap<Pid, BTreeSet<Pid>> {
        let mut behind: BTreeMap<Pid, BTreeSet<Pid>> = BTreeMap::new();
        for start in self.edges.keys() {
            let mut seen = BTreeSet::from([*start]);
            let mut todo = vec![*start];
            while let Some(pid) = todo.pop() {
                // One of several partners is not known to be the one.
                let Some(next) = self.edges.get(&pid).filter(|next| next.len() == 1).and_then(BTreeSet::first) else {
                    continue;
                };
                if seen.insert(*next) {
                    behind.entry(*next).or_default().insert(*start);
                    todo.push(*next);
                }
            }
        }
        behind
    }
}

/// The other processes of the hang that a look at one has found.
fn circle_of(snapshot: &Snapshot) -> Vec<Pid> {
    let hang = snapshot.findings.iter().find(|finding| finding.kind.is_hang());
    hang.map(|finding| others_in(snapshot.target.pid, finding)).unwrap_or_default()
}

fn others_in(pid: Pid, finding: &Finding) -> Vec<Pid> {
    let pids: BTreeSet<Pid> = finding.members.iter().map(|member| member.pid).filter(|it| *it != pid).collect();
    pids.into_iter().collect()
}

/// Whether a thread is where no signal wakes it. There is, too, who waits for a child that uses its memory: that is told as such.
fn is_deep(facts: &LwpFacts) -> bool {
    let call = facts.syscall.and_then(|call| call.call());
    facts.state == KernelState::DiskSleep && !call.is_some_and(|call| waits_for_child(&call))
}

/// Circles come first, then who keeps many waiting, then threads that no signal wakes, stopped ones, and those that nobody wakes.
fn rank(process: &ProcessToSee) -> usize {
    match process.verdict.kind {
        VerdictKind::Deadlock => 0,
        VerdictKind::Behind => 1,
        _ if process.behind.len() >= MANY => 1,
        VerdictKind::Unkillable => 2,
        VerdictKind::Stopped => 3,
        VerdictKind::NobodyLeft => 4,
        _ => 5,
    }
}

/// Whether a process of which this is said is worth a look by itself.
fn is_wrong(kind: VerdictKind) -> bool {
    matches!(
        kind,
        VerdictKind::Deadlock
            | VerdictKind::NobodyLeft
            | VerdictKind::Stopped
            | VerdictKind::Behind
            | VerdictKind::Unkillable
    )
}
