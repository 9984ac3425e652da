//! What threads wait for, by groups: those that wait at the same place in the same way are one.

use super::calls;
use super::words::label;
use crate::look::own_frames;
use crate::model::{Frame, Snapshot, SyncKind, SyncObject, Thread, ThreadState, WaitGroup};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

/// Frames of the program that tell a place from another one, and that are shown of it.
const FRAMES: usize = 3;

/// What two threads of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Manner {
    state: &'static str,
    kind: Option<SyncKind>,
    call: Option<String>,
    place: Vec<(Option<String>, Option<u64>)>,
}

/// The groups of all living threads of `snapshot`, whose ages are `ages`: those that wait for work last.
pub(super) fn groups(snapshot: &Snapshot, ages: &HashMap<Lwp, u64>) -> Vec<WaitGroup> {
    let objects: HashMap<RemoteAddr, &SyncObject> =
        snapshot.objects.iter().map(|object| (object.address, object)).collect();
    let mut groups: BTreeMap<Manner, Vec<&Thread>> = BTreeMap::new();
    for thread in snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie) {
        groups.entry(manner(thread)).or_default().push(thread);
    }
    let mut groups: Vec<WaitGroup> =
        groups.into_iter().map(|(manner, threads)| group(manner, &threads, &objects, ages)).collect();
    groups.sort_by_cached_key(|group| {
        (group.idle, std::cmp::Reverse(group.threads.len()), std::cmp::Reverse(group.oldest_ms), group.threads.clone())
    });
    groups
}

fn manner(thread: &Thread) -> Manner {
    let waits = thread.waits_for.as_ref();
    let call = thread.syscall.as_ref().filter(|_| waits.is_none());
    // Of a running thread the address changes from look to look.
    let place = |frame: &Frame| match &frame.function {
        Some(function) => (Some(function.clone()), None),
        None => (frame.module.clone(), frame.offset),
    };
    Manner {
        state: thread.state.word(),
        kind: waits.map(|waits| waits.kind),
        call: call.map(|call| call.name.to_string()),
        place: own_frames(&thread.frames).take(FRAMES).map(place).collect(),
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
    WaitGroup {
        what: first.map(|first| what(first, threads, &manner, object, waited.len(), objects)).unwrap_or_default(),
        kind: manner.kind,
        object,
        idle: first.is_some_and(is_idle),
        call: manner.call,
        oldest_ms: ages().max(),
        youngest_ms: ages().min(),
        frames: first.map(|first| own_frames(&first.frames).take(FRAMES).cloned().collect()).unwrap_or_default(),
        threads: lwps,
    }
}

/// Whether a thread waits for work, as threads of servers do.
pub(super) fn is_idle(thread: &Thread) -> bool {
    if !matches!(thread.state, ThreadState::Sleep | ThreadState::StoppedAsleep) {
        return false;
    }
    match (&thread.waits_for, &thread.syscall) {
        (Some(waits), _) => matches!(waits.kind, SyncKind::Cond | SyncKind::Park),
        (None, Some(call)) => calls::outside(call).is_idle(),
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
    let spins = first.watched.as_ref().is_some_and(|watched| watched.spins.is_some());
    let doing = match (manner.kind, object, &first.syscall) {
        (Some(SyncKind::Park), ..) => "parked, waiting to be unparked".to_owned(),
        (Some(kind), Some(address), _) => {
            let name = objects.get(&address).map_or_else(|| format!("{} {address}", kind.word()), |it| label(it));
            format!("waiting {} {name}", preposition(kind))
        }
        (Some(SyncKind::Join), None, _) => format!("waiting for the end of {different} different threads"),
        (Some(kind), None, _) => format!("waiting {} {different} different {}", preposition(kind), several(kind)),
        (None, _, Some(call)) if manner.call.is_some() => {
            let same = threads
                .iter()
                .all(|thread| thread.syscall.as_ref().is_some_and(|other| other.descriptors == call.descriptors));
            let outside = (first.waits_outside.as_ref().filter(|wait| wait.text != calls::doing(call)))
                .map(|wait| format!("; {}", wait.text))
                .unwrap_or_default();
            match same {
                true => format!("{}{outside}", calls::doing(call)),
                false => calls::doing(&crate::model::Syscall { descriptors: Vec::new(), ..call.clone() }),
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
    format!("{stop}{doing}")
}

fn several(kind: SyncKind) -> String {
    let word = kind.word();
    if word.ends_with('x') { format!("{word}es") } else { format!("{word}s") }
}

fn preposition(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Cond | SyncKind::Futex => "on",
        SyncKind::Barrier => "at",
        _ => "for",
    }
}
