//! What a wait is called, which object it is for, and which tasks hold that.

use super::future::{FutureFacts, HeldLock, LeafWait};
use super::reader::ReadTask;
use super::types::Leaf;
use crate::RemoteAddr;
use crate::model::{ChannelUse, Evidence, SharedText, Side, SyncKind, TaskHolds, TaskWait, TaskWaitsFor};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Paths of tokio, and what a task that is in one of their functions waits for.
const PATHS: [(&str, &str, SyncKind); 9] = [
    ("tokio::sync::mutex::", "mutex", SyncKind::Mutex),
    ("tokio::sync::rwlock::", "rwlock", SyncKind::Rwlock),
    ("tokio::sync::semaphore::", "semaphore", SyncKind::Semaphore),
    ("tokio::sync::mpsc::", "channel", SyncKind::Channel),
    ("tokio::sync::watch::", "watch channel", SyncKind::Channel),
    ("tokio::sync::broadcast::", "broadcast channel", SyncKind::Channel),
    ("tokio::sync::barrier::", "barrier", SyncKind::Barrier),
    ("tokio::sync::once_cell::", "once cell", SyncKind::Once),
    ("tokio::sync::notify::", "notify", SyncKind::Cond),
];

/// Who holds what, of all tasks.
pub(super) struct Links {
    /// Holders of each lock of tokio, by its semaphore.
    holders: HashMap<RemoteAddr, BTreeSet<u64>>,
    /// Tasks by their addresses.
    ids: HashMap<RemoteAddr, u64>,
    /// The locks that tasks wait for: the lock, and its semaphore.
    wanted: HashMap<RemoteAddr, RemoteAddr>,
    /// What those are, by semaphore.
    kinds: HashMap<RemoteAddr, SyncKind>,
    /// Locks for one, of which several tasks have a guard: all of these but one have given it away.
    doubtful: HashSet<RemoteAddr>,
    /// Locks for one that were given to a future that has not noticed: all guards of these are old.
    granted: HashSet<RemoteAddr>,
    ends: Ends,
}

/// Which tasks have the ends of channels.
#[derive(Default)]
struct Ends {
    receivers: HashMap<RemoteAddr, BTreeSet<u64>>,
    senders: HashMap<RemoteAddr, BTreeSet<u64>>,
    /// Of each channel: how many of its senders tasks have less than there are.
    missing: HashMap<RemoteAddr, i64>,
}

impl Ends {
    fn of<'f>(tasks: impl Iterator<Item = (&'f ReadTask, &'f FutureFacts)>) -> Self {
        let mut ends = Self::default();
        for (task, facts) in tasks {
            for end in &facts.ends {
                let side = if end.sends { &mut ends.senders } else { &mut ends.receivers };
                side.entry(end.channel).or_default().insert(task.id);
                if end.sends {
                    // How many there are is not known of every channel.
                    let all = end.senders.and_then(|all| i64::try_from(all).ok()).unwrap_or(i64::MAX);
                    *ends.missing.entry(end.channel).or_insert(all) -= 1;
                }
            }
        }
        ends
    }

    /// The tasks that could end the wait of one that sends to `channel`, or receives; none, unless they are all.
    fn others(&self, channel: RemoteAddr, how: ChannelUse) -> Vec<u64> {
        let tasks = match how {
            ChannelUse::Send => self.receivers.get(&channel),
            ChannelUse::Receive => {
                self.senders.get(&channel).filter(|_| self.missing.get(&channel).is_some_and(|missing| *missing <= 0))
            }
        };
        tasks.into_iter().flatten().copied().collect()
    }
}

impl Links {
    pub(super) fn of(tasks: &[ReadTask]) -> Self {
        let ids = tasks.iter().map(|task| (task.at, task.id)).collect();
        let facts = || tasks.iter().filter_map(|task| Some((task, task.facts.as_ref()?)));
        let waits = facts().flat_map(|(_, facts)| &facts.waits);
        let wanted = waits.clone().filter_map(|wait| Some((wait.object?, wait.semaphore?))).collect();
        let kinds = waits.filter_map(|wait| Some((wait.semaphore?, kind_of(wait).0))).collect();
        let is_granted = |wait: &&LeafWait| wait.is_granted && kind_of(wait).0 == SyncKind::Mutex;
        let granted = facts().flat_map(|(_, facts)| &facts.waits).filter(is_granted);
        let granted = granted.filter_map(|wait| wait.semaphore).collect();
        let mut guards: HashMap<RemoteAddr, BTreeSet<u64>> = HashMap::new();
        for (task, facts) in facts() {
            for held in facts.holds.iter().filter(|held| is_for_one(held)) {
                guards.entry(held.semaphore.unwrap_or(held.object)).or_default().insert(task.id);
            }
        }
        let doubtful = guards.into_iter().filter(|(_, tasks)| tasks.len() > 1).map(|(lock, _)| lock).collect();
        let (holders, ends) = (HashMap::new(), Ends::of(facts()));
        let mut links = Self { holders, ids, wanted, kinds, doubtful, granted, ends };
        for (task, facts) in facts() {
            let guards: BTreeSet<RemoteAddr> = links.semaphores_held(facts).into_iter().map(|(at, ..)| at).collect();
            for semaphore in guards {
                links.holders.entry(semaphore).or_default().insert(task.id);
            }
        }
        links
    }

    /// The semaphores of the locks that a task holds, with how that is known and whether nobody polls who has it.
    fn semaphores_held(&self, facts: &FutureFacts) -> Vec<(RemoteAddr, Evidence, bool)> {
        let guards = facts.holds.iter().filter_map(|held| Some((held.semaphore?, self.evidence(held)?, false)));
        let granted = facts.waits.iter().filter(|wait| wait.is_granted && !wait.is_polled);
        let granted = granted.filter_map(|wait| Some((wait.semaphore?, Evidence::Derived, true)));
        // A word that is the address of a lock that somebody waits for, in a variable without a type: a guard.
        let hidden = facts.hidden.iter().filter_map(|word| self.wanted.get(&RemoteAddr(*word)));
        let hidden = hidden.map(|semaphore| (*semaphore, Evidence::Inferred, false));
        guards.chain(granted).chain(hidden).collect()
    }

    /// How it is known that a task has what its guard stands for; `None` if it has not.
    fn evidence(&self, held: &HeldLock) -> Option<Evidence> {
        let lock = held.semaphore.unwrap_or(held.object);
        match (self.granted.contains(&lock), self.doubtful.contains(&lock)) {
            (true, _) => None,
            (false, true) => Some(Evidence::Inferred),
            (false, false) => Some(Evidence::Derived),
        }
    }

    /// The locks that a task holds.
    pub(super) fn holds(&self, facts: &FutureFacts) -> Vec<TaskHolds> {
        let mut holds: Vec<TaskHolds> = Vec::new();
        let mut add = |held: TaskHolds| {
            if holds.iter().all(|other| other.address != held.address) {
                holds.push(held);
            }
        };
        for held in &facts.holds {
            let (kind, side) = held_kind(held);
            // A permit may be of what is built on semaphores.
            let wanted = held.semaphore.and_then(|semaphore| self.kinds.get(&semaphore)).copied();
            let kind = wanted.filter(|_| kind == SyncKind::Semaphore).unwrap_or(kind);
            let Some(evidence) = self.evidence(held) else { continue };
            let address = held.semaphore.unwrap_or(held.object);
            add(TaskHolds { address, kind, side, evidence, unpolled: false, blocks_threads: held.other.is_some() });
        }
        for (semaphore, evidence, unpolled) in self.semaphores_held(facts) {
            let kind = self.kinds.get(&semaphore).copied().unwrap_or(SyncKind::Mutex);
            add(TaskHolds { address: semaphore, kind, side: None, evidence, unpolled, blocks_threads: false });
        }
        holds
    }

    /// The wait of a task whose future tells `facts`.
    pub(super) fn wait(&self, facts: &FutureFacts) -> Option<TaskWait> {
        let polled: Vec<&LeafWait> = facts.waits.iter().filter(|wait| wait.is_polled).collect();
        let mut words: Vec<String> = Vec::new();
        let mut objects: Vec<TaskWaitsFor> = Vec::new();
        for wait in &polled {
            let (kind, word) = kind_of(wait);
            if !words.contains(&word) {
                words.push(word);
            }
            objects.extend(self.object(wait, kind));
        }
        if facts.is_new {
            words = vec!["not polled yet".to_owned()];
        }
        if words.is_empty() {
            words.push(match &facts.unknown {
                Some(name) => format!("future {name}"),
                None => "a future that is not known".to_owned(),
            });
        }
        let timed = polled.iter().any(|wait| wait.leaf == Leaf::Sleep);
        let for_ever = !polled.is_empty() && polled.iter().all(|wait| wait.leaf == Leaf::Pending);
        let descriptor = polled.iter().find_map(|wait| wait.descriptor);
        let reason = SharedText::from(words.join(" or ").as_str());
        Some(TaskWait { objects, descriptor, timed, for_ever, ..TaskWait::new(reason) })
    }

    fn object(&self, wait: &LeafWait, kind: SyncKind) -> Option<TaskWaitsFor> {
        let channel = wait.channel.filter(|_| kind == SyncKind::Channel);
        let address = channel.or(wait.semaphore).or(wait.object)?;
        let through = wait.through.as_deref().unwrap_or_default();
        let name = through.rsplit("::").next().unwrap_or_default();
        let side = match kind {
            SyncKind::Rwlock if name.starts_with("read") => Some(Side::Read),
            SyncKind::Rwlock => Some(Side::Write),
            _ => None,
        };
        let channel_use = match kind {
            SyncKind::Channel if name.starts_with("send") || name.starts_with("reserve") => Some(ChannelUse::Send),
            SyncKind::Channel => Some(ChannelUse::Receive),
            _ => None,
        };
        let held_by = match wait.leaf {
            Leaf::JoinHandle => self.ids.get(&address).copied().into_iter().collect(),
            Leaf::Acquire => self.holders.get(&address).map(|ids| ids.iter().copied().collect()).unwrap_or_default(),
            _ => Vec::new(),
        };
        let is_object = !matches!(wait.leaf, Leaf::Device | Leaf::Readiness);
        let ends = channel.zip(channel_use);
        let woken_by = ends.map(|(channel, how)| self.ends.others(channel, how)).unwrap_or_default();
        is_object.then_some(TaskWaitsFor {
            address,
            kind,
            side,
            channel_use,
            held_by,
            woken_by,
            evidence: Evidence::Derived,
        })
    }
}

/// What a wait is for, and what it is called.
fn kind_of(wait: &LeafWait) -> (SyncKind, String) {
    let through = wait.through.as_deref().unwrap_or_default();
    let function = through.rsplit("::").next().unwrap_or_default();
    let known = PATHS.iter().find(|(path, ..)| through.starts_with(path));
    let (kind, word) = match (wait.leaf, known) {
        (Leaf::Acquire | Leaf::Notified, Some((_, word, kind))) => (*kind, *word),
        (Leaf::Acquire, None) => (SyncKind::Semaphore, "semaphore"),
        (Leaf::Notified, None) => (SyncKind::Cond, "notify"),
        (Leaf::JoinHandle, _) => (SyncKind::Join, "end of a task"),
        (Leaf::JoinSet, _) => (SyncKind::Join, "end of a task of a set"),
        (Leaf::Oneshot, _) => (SyncKind::Channel, "oneshot channel"),
        (Leaf::Receiver, _) => (SyncKind::Channel, "channel"),
        (Leaf::Broadcast, _) => (SyncKind::Channel, "broadcast channel"),
        (Leaf::Sleep, _) => (SyncKind::Futex, "sleep"),
        (Leaf::Readiness | Leaf::Device, _) if through.starts_with("tokio::process::") => {
            (SyncKind::Futex, "end of a child process")
        }
        (Leaf::Readiness | Leaf::Device, _) => (SyncKind::Futex, "input or output"),
        (Leaf::Signal, _) => (SyncKind::Futex, "signal"),
        (Leaf::Yield, _) => (SyncKind::Futex, "its next turn"),
        (Leaf::Pending, _) => (SyncKind::Futex, "nothing, for ever"),
    };
    let word = match kind {
        SyncKind::Rwlock if function.starts_with("read") => format!("{word} to read"),
        SyncKind::Rwlock => format!("{word} to write"),
        SyncKind::Channel if function.starts_with("send") || function.starts_with("reserve") => format!("{word} send"),
        SyncKind::Channel => format!("{word} receive"),
        _ => word.to_owned(),
    };
    (kind, word)
}

/// Whether only one can have what a guard stands for.
fn is_for_one(held: &HeldLock) -> bool {
    match held_kind(held) {
        (SyncKind::Mutex, _) => true,
        (SyncKind::Rwlock, side) => side == Some(Side::Write),
        _ => false,
    }
}

/// What a guard holds.
fn held_kind(held: &HeldLock) -> (SyncKind, Option<Side>) {
    if let Some((kind, _)) = held.other {
        return (kind, None);
    }
    let guard = held.guard.split('<').next().unwrap_or_default();
    let side = if guard.contains("Read") { Side::Read } else { Side::Write };
    match guard {
        _ if guard.contains("RwLock") => (SyncKind::Rwlock, Some(side)),
        _ if guard.contains("Permit") => (SyncKind::Semaphore, None),
        _ => (SyncKind::Mutex, None),
    }
}
