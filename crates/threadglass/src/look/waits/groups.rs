//! What threads wait for, by groups: those that wait at the same place in the same way are one.

use super::calls;
use super::libc_work::helper;
use super::verdict::{name_of, spinning};
use super::words::{came, label};
use crate::look::own_frames;
use crate::model::{
    Family, Frame, OutsideKind, OutsideWait, Snapshot, SyncKind, SyncObject, Thread, ThreadState, WaitGroup,
};
use crate::runtimes::{self, Nature};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

/// Frames of the program that tell a place from another one, and that are shown of it.
const FRAMES: usize = 3;

/// What two threads of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Manner {
    state: &'static str,
    kind: Option<SyncKind>,
    family: Option<Family>,
    how: Option<&'static str>,
    call: Option<String>,
    /// What is polled, in words.
    polls: Option<String>,
    place: Vec<(Option<String>, Option<u64>)>,
}

impl Manner {
    /// What is particular about the waits.
    fn nature(&self) -> Nature {
        self.kind.zip(self.family).map_or(Nature::Plain, |(kind, family)| runtimes::nature(kind, family))
    }
}

/// The groups of all living threads of `snapshot`, whose ages are `ages`: those that wait for work last.
pub(super) fn groups(snapshot: &Snapshot, ages: &HashMap<Lwp, u64>) -> Vec<WaitGroup> {
    let objects: HashMap<RemoteAddr, &SyncObject> =
        snapshot.objects.iter().map(|object| (object.address, object)).collect();
    let mut groups: BTreeMap<Manner, Vec<&Thread>> = BTreeMap::new();
    for thread in snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie) {
        groups.entry(manner(thread, &objects)).or_default().push(thread);
    }
    let with_holder = |(manner, threads): (Manner, Vec<&Thread>)| {
        let mut group = group(manner, &threads, &objects, ages);
        let object = group.object.and_then(|address| objects.get(&address));
        group.what += &object.map_or_else(String::new, |object| held_by(object, &snapshot.threads));
        group
    };
    let mut groups: Vec<WaitGroup> = groups.into_iter().map(with_holder).collect();
    groups.sort_by_cached_key(|group| {
        (group.idle, std::cmp::Reverse(group.threads.len()), std::cmp::Reverse(group.oldest_ms), group.threads.clone())
    });
    groups
}

fn manner(thread: &Thread, objects: &HashMap<RemoteAddr, &SyncObject>) -> Manner {
    let waits = thread.waits_for.as_ref();
    let call = thread.syscall.as_ref().filter(|_| waits.is_none());
    // Of a running thread the address changes from look to look.
    let place = |frame: &Frame| match &frame.function {
        Some(function) => (Some(function.clone()), None),
        None => (frame.module.clone(), frame.offset),
    };
    let family = waits.and_then(|waits| objects.get(&waits.address)).map(|object| object.family);
    // Where the runtime's own threads wait tells nothing to whoever uses it.
    let nature = waits.zip(family).map_or(Nature::Plain, |(waits, family)| runtimes::nature(waits.kind, family));
    let told = if nature == Nature::OwnWork { 0 } else { FRAMES };
    Manner {
        state: thread.state.word(),
        kind: waits.map(|waits| waits.kind),
        family,
        how: waits.and_then(|waits| waits.how),
        call: call.map(|call| call.name.to_string()),
        polls: thread.polls.as_deref().map(spinning),
        place: own_frames(&thread.frames).take(told).map(place).collect(),
    }
}

fn group(
    manner: Manner,
    threads: &[&Thread],
    objects: &HashMap<RemoteAddr, &SyncObject>,
    ages: &HashMap<Lwp, u64>,
) -> WaitGroup {
    let lwps: Vec<Lwp> = threads.iter().filter_map(|thread| thread.lwp).collect();
    let ages = || lwps.iter().filter_map(|lwp| ages.get(lwp).copied());
    let mut waited: Vec<RemoteAddr> =
        threads.iter().filter_map(|thread| Some(thread.waits_for.as_ref()?.address)).collect();
    waited.sort_unstable();
    waited.dedup();
    let object = match waited.as_slice() {
        [one] => Some(*one),
        _ => None,
    };
    let first = threads.first().copied();
    // What these wait for only the language knows.
    let is_unseen = matches!(manner.nature(), Nature::Unseen(_));
    WaitGroup {
        what: first.map(|first| what(first, threads, &manner, object, waited.len(), objects)).unwrap_or_default(),
        kind: manner.kind,
        object,
        idle: first.is_some_and(is_idle) && !is_unseen,
        frames: first
            .map(|first| own_frames(&first.frames).take(manner.place.len()).cloned().collect())
            .unwrap_or_default(),
        call: manner.call,
        oldest_ms: ages().max(),
        youngest_ms: ages().min(),
        threads: lwps,
    }
}

/// Whether a thread waits for work, as threads of servers do.
pub(super) fn is_idle(thread: &Thread) -> bool {
    if !matches!(thread.state, ThreadState::Sleep | ThreadState::StoppedAsleep) || thread.polls.is_some() {
        return false;
    }
    match (&thread.waits_for, &thread.syscall) {
        (Some(waits), _) => matches!(waits.kind, SyncKind::Cond | SyncKind::Park),
        // Who asks a name server has work.
        (None, Some(call)) => {
            let is_lookup = |wait: &OutsideWait| wait.kind == OutsideKind::Socket;
            calls::outside(call).is_idle() && !thread.waits_outside.as_deref().is_some_and(is_lookup)
        }
        (None, None) => false,
    }
}

fn what(
    first: &Thread,
    threads: &[&Thread],
    manner: &Manner,
    object: Option<RemoteAddr>,
    different: usize,
    objects: &HashMap<RemoteAddr, &SyncObject>,
) -> String {
    let stop = match first.stop {
        Some(_) => "stopped, ",
        None => "",
    };
    let object_of_first = first.waits_for.as_ref().and_then(|waits| objects.get(&waits.address));
    let noun = |kind: SyncKind| object_of_first.and_then(|object| object.noun()).unwrap_or(kind.word());
    let spins = first.watched.as_ref().is_some_and(|watched| watched.spins.is_some());
    let doing = match (manner.kind, object, &first.syscall) {
        _ if manner.nature() == Nature::OwnWork => "waiting for work of the runtime's own".to_owned(),
        (Some(_), ..) if manner.how.is_some() => format!("waiting {}", manner.how.unwrap_or_default()),
        (Some(SyncKind::Park), ..) => match manner.nature() {
            Nature::Unseen(Some(doing)) => doing.to_owned(),
            _ => "parked, waiting to be unparked".to_owned(),
        },
        (Some(kind), Some(address), _) => {
            let name =
                objects.get(&address).map_or_else(|| format!("{} {address}", kind.word()), |it| label(it) + &came(it));
            format!("waiting {} {name}", preposition(kind))
        }
        (Some(SyncKind::Join), None, _) => format!("waiting for the end of {different} different threads"),
        (Some(kind), None, _) => format!("waiting {} {different} different {}", preposition(kind), several(noun(kind))),
        (None, ..) if manner.polls.is_some() => {
            format!("polling {}", manner.polls.as_deref().unwrap_or_default().trim_start_matches("polls "))
        }
        (None, _, Some(call)) if manner.call.is_some() => {
            let same = threads
                .iter()
                .all(|thread| thread.syscall.as_ref().is_some_and(|other| other.descriptors == call.descriptors));
            let text = |thread: &Thread| thread.waits_outside.as_ref().map(|wait| wait.text.clone());
            // It may say what the thread does, and go on from there.
            let outside = text(first).map_or_else(String::new, |text| match text.strip_prefix(&calls::doing(call)) {
                Some(more) => more.to_owned(),
                None => format!("; {text}"),
            });
            let is_shared = threads.iter().all(|thread| text(thread) == text(first));
            let without = || calls::doing(&crate::model::Syscall { descriptors: Vec::new(), ..call.clone() });
            match (same, is_shared) {
                (true, _) => format!("{}{outside}", calls::doing(call)),
                (false, true) => format!("{}{outside}", without()),
                (false, false) => without(),
            }
        }
        _ => match first.state {
            ThreadState::Active if first.stop.is_some() => "running before the stop".to_owned(),
            ThreadState::Active if spins => "spinning, which is a wait that takes a CPU".to_owned(),
            ThreadState::Active => "running".to_owned(),
            ThreadState::Run => "runnable, without a CPU".to_owned(),
            ThreadState::Sleep | ThreadState::StoppedAsleep => "asleep".to_owned(),
            state => state.word().replace('_', " "),
        },
    };
    match helper(first) {
        Some(helper) => format!("{stop}{doing}; {helper}"),
        None => format!("{stop}{doing}"),
    }
}

/// `, held by worker (4711)`
fn held_by(object: &SyncObject, threads: &[Thread]) -> String {
    // Of a join the name says whose end it is.
    if object.kind == SyncKind::Join {
        return String::new();
    }
    let name = |lwp: Lwp| threads.iter().find(|thread| thread.lwp == Some(lwp)).map(name_of);
    let lwps: Vec<Lwp> = object.holders.iter().filter_map(|holder| holder.lwp).collect();
    match lwps.as_slice() {
        [] => String::new(),
        [one] => name(*one).map_or_else(String::new, |name| format!(", held by {name}")),
        many => format!(", held by {} threads", many.len()),
    }
}

fn several(word: &str) -> String {
    if word.ends_with('x') { format!("{word}es") } else { format!("{word}s") }
}

fn preposition(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Cond | SyncKind::Futex => "on",
        SyncKind::Barrier => "at",
        _ => "for",
    }
}
