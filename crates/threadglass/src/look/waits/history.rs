//! Several looks at one process: what each of them showed, and what only one did.

use super::calls;
use super::findings::finding;
use super::words::{count, label};
use crate::model::{Certainty, Finding, FindingKind, Snapshot, SyncKind, Syscall, Thread, ThreadState};
use crate::{Lwp, RemoteAddr, runtimes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// By what a finding is known in another look: of a chain its root and what that holds, of others all.
type Key = (FindingKind, Vec<Lwp>, Vec<RemoteAddr>);

/// What was seen of a lock that threads waited for.
#[derive(Debug, Default)]
struct Waited {
    /// In how many looks.
    looks: u32,
    /// The most that waited in one look.
    most: usize,
    /// Who waited, in each look.
    waiters: BTreeSet<Vec<Lwp>>,
    /// Who held it, in how many looks.
    holders: BTreeMap<Lwp, u32>,
    /// What the holders did, in how many looks.
    doing: BTreeMap<String, u32>,
    /// Its name, and that of the threads.
    label: String,
}

/// What was seen in all looks so far.
#[derive(Debug, Default)]
pub(super) struct History {
    looks: u32,
    seen: BTreeMap<Key, u32>,
    waited: BTreeMap<RemoteAddr, Waited>,
    /// The last look in which most threads waited for locks.
    worst: Option<(usize, Snapshot)>,
}

impl History {
    /// Takes note of one look.
    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        self.looks += 1;
        for key in snapshot.findings.iter().map(key).collect::<BTreeSet<Key>>() {
            *self.seen.entry(key).or_default() += 1;
        }
        for object in snapshot.objects.iter().filter(|object| !object.waiters.is_empty()) {
            if !matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once) {
                continue;
            }
            let waited = self.waited.entry(object.address).or_default();
            waited.looks += 1;
            waited.most = waited.most.max(object.waiters.len());
            let mut waiters: Vec<Lwp> = object.waiters.iter().map(|waiter| waiter.lwp).collect();
            waiters.sort_unstable();
            waited.waiters.insert(waiters);
            waited.label = label(object);
            for lwp in object.holders.iter().filter_map(|holder| holder.lwp) {
                *waited.holders.entry(lwp).or_default() += 1;
                let holder = snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp));
                // One that is about to wait for the lock has just released it.
                let waits = |thread: &&Thread| thread.waits_for.as_ref().is_some_and(|it| it.address == object.address);
                if let Some(doing) = holder.filter(|thread| !waits(thread)).and_then(while_holding) {
                    *waited.doing.entry(doing).or_default() += 1;
                }
            }
        }
        let ways = snapshot.findings.iter().filter(|finding| finding.kind.is_root());
        let behind = ways.map(|finding| finding.threads.len() + finding.behind.len()).sum();
        if behind > 0 && self.worst.as_ref().is_none_or(|(most, _)| behind >= *most) {
            self.worst = Some((behind, snapshot.clone()));
        }
    }

    /// Of `last`, the last look, what more than one look showed; of an earlier one, if that is where it can be seen.
    pub(super) fn finish(self, last: Snapshot) -> Snapshot {
        let lasts = |finding: &Finding| {
            let seen = self.seen.get(&key(finding)).copied().unwrap_or(1);
            self.looks < 3 || seen > 1 || finding.certainty == Certainty::Certain && !finding.kind.is_root()
        };
        let shows =
            |snapshot: &Snapshot| snapshot.findings.iter().any(|finding| finding.kind.is_root() && lasts(finding));
        let hangs = last.findings.iter().any(|finding| finding.kind.is_hang());
        let mut snapshot = match self.worst {
            Some((_, worst)) if !hangs && !shows(&last) && shows(&worst) => worst,
            _ => last,
        };
        snapshot.findings.retain(lasts);
        snapshot.looks = self.looks;
        for finding in &mut snapshot.findings {
            finding.seen = self.seen.get(&key(finding)).copied().unwrap_or(1);
        }
        // What a chain or circle tells of, also by the threads that queue behind.
        let members: BTreeSet<Lwp> = snapshot
            .findings
            .iter()
            .flat_map(|finding| finding.threads.iter().chain(&finding.behind).copied())
            .collect();
        let is_member = |thread: &&Thread| thread.lwp.is_some_and(|lwp| members.contains(&lwp));
        let waited = snapshot.threads.iter().filter(is_member).filter_map(|thread| thread.waits_for.as_ref());
        let mut told: BTreeSet<RemoteAddr> = waited.map(|waits| waits.address).collect();
        told.extend(snapshot.findings.iter().flat_map(|finding| finding.objects.iter().copied()));
        // That the same threads wait for one that nobody was seen to hold says nothing of hands.
        let moves = |waited: &Waited| !waited.holders.is_empty() || waited.waiters.len() > 1;
        let handed = self.waited.iter().filter(|(_, waited)| waited.looks > 1 && moves(waited));
        let handed = handed.filter(|(address, _)| !told.contains(address));
        let pid = snapshot.target.pid;
        snapshot.findings.extend(handed.map(|(address, waited)| handed_over(*address, waited, self.looks, pid)));
        snapshot
    }
}

fn key(finding: &Finding) -> Key {
    match finding.kind {
        FindingKind::LongChain => {
            let (root, last) = (finding.threads.last().copied(), finding.objects.last().copied());
            (finding.kind, root.into_iter().collect(), last.into_iter().collect())
        }
        FindingKind::HolderUnknown => (finding.kind, Vec::new(), finding.objects.clone()),
        kind => {
            let (mut threads, mut objects) = (finding.threads.clone(), finding.objects.clone());
            threads.sort_unstable();
            objects.sort_unstable();
            (kind, threads, objects)
        }
    }
}

/// A lock that was waited for in more than one look, each time in other hands.
fn handed_over(address: RemoteAddr, waited: &Waited, looks: u32, pid: crate::Pid) -> Finding {
    let mut holders: Vec<(Lwp, u32)> = waited.holders.iter().map(|(lwp, times)| (*lwp, *times)).collect();
    holders.sort_by_key(|(lwp, times)| (std::cmp::Reverse(*times), *lwp));
    let usual = match holders.as_slice() {
        [] => "no holder was seen".to_owned(),
        many => {
            let held: Vec<String> = many
                .iter()
                .take(3)
                .map(|(lwp, times)| format!("by thread {lwp} in {times} of {looks} looks"))
                .collect();
            format!("it was held {}", held.join(", "))
        }
    };
    let doing = waited.doing.iter().max_by_key(|(_, times)| **times).filter(|(_, times)| **times > 1);
    let doing = doing.map_or_else(String::new, |(doing, times)| format!("; in {times} of them its holder {doing}"));
    let text = format!(
        "{} is handed from thread to thread: {} for it at most, in {} of {looks} looks; {usual}{doing}",
        waited.label,
        count(waited.most, "thread waited", "threads waited"),
        waited.looks
    );
    let threads: Vec<Lwp> = holders.into_iter().map(|(lwp, _)| lwp).collect();
    let member = |lwp: &Lwp| crate::model::Member { pid, lwp: Some(*lwp), object: Some(address) };
    Finding {
        members: threads.iter().map(member).collect(),
        seen: waited.looks,
        text,
        ..finding(FindingKind::HandedOver, Certainty::Likely, threads, vec![address], Vec::new())
    }
}

/// What a thread does that holds a lock, as one look shows that. Of a wait for another lock other findings tell.
fn while_holding(thread: &Thread) -> Option<String> {
    match (thread.state, &thread.waits_for, &thread.syscall) {
        (ThreadState::Active | ThreadState::Run, ..) => Some("runs".to_owned()),
        (_, None, Some(call)) => {
            // Each thread may have a descriptor of its own.
            let call = Syscall { descriptors: Vec::new(), ..call.clone() };
            Some(format!("is {}", calls::doing(&call)))
        }
        _ => None,
    }
}

/// Says of locks for which no thread has waited as long as the looks took that they go from thread to thread.
pub(super) fn tell_passing(snapshot: &mut Snapshot, took: Duration) {
    if snapshot.looks < 2 {
        return;
    }
    for finding in snapshot.findings.iter_mut().filter(|finding| finding.kind == FindingKind::LongChain) {
        let (Some(lock), Some(root)) = (finding.objects.last(), finding.threads.last()) else { continue };
        let Some(object) = snapshot.objects.iter().find(|object| object.address == *lock) else { continue };
        // Who asks for some locks wakes every few milliseconds, and waits on.
        let is_asked_for = runtimes::of(object.family).keeps_waiting(object.kind, object.family);
        let is_lock = matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock) && !is_asked_for;
        let waits = snapshot.threads.iter().filter_map(|thread| thread.waits_for.as_ref());
        // A wait with a time limit ends, and the next one begins, while the lock stays where it is.
        let waits = waits.filter(|waits| waits.address == *lock && !waits.timed);
        let longest = waits.map(|waits| waits.since_ms).max_by_key(unknown_last);
        let Some(Some(longest)) = longest.filter(|_| is_lock) else { continue };
        // Twice as long, as the looks begin with some work.
        if 2 * u128::from(longest) < took.as_millis() {
            let holder = snapshot.threads.iter().find(|thread| thread.lwp == Some(*root));
            let holder = holder.and_then(|thread| thread.name.as_ref()).map(|name| format!("{name} ({root})"));
            // What the words of the chain say of its root.
            let doing = finding.text.split_once(&format!("holds {} and ", label(object)));
            let doing = doing.map_or_else(String::new, |(_, doing)| format!(", which {doing}"));
            finding.text = format!(
                "{} for {}, which goes from thread to thread: no wait has lasted longer than {longest} ms; held by \
                 {}{doing}",
                count(object.waiters.len(), "thread waits", "threads wait"),
                label(object),
                holder.unwrap_or_else(|| format!("thread {root}"))
            );
        }
    }
}

/// An unknown time may be longer than all others.
fn unknown_last(time: &Option<u64>) -> u64 {
    time.unwrap_or(u64::MAX)
}
