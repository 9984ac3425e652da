//! The answer in one sentence.

use super::calls;
use super::groups::is_idle;
use super::words::count;
use crate::look::own_frames;
use crate::model::{
    Certainty, Finding, FindingKind, Frame, Libc, Snapshot, Spin, Stop, StopKind, SyncKind, Thread, ThreadState,
    Verdict, VerdictKind,
};
use std::collections::BTreeSet;

/// Running threads and groups that the sentence names.
const NAMED: usize = 3;

/// What `snapshot` says of its process, whose findings and groups are known. A stop is told in any case.
pub(super) fn verdict(snapshot: &Snapshot) -> Verdict {
    let mut verdict = first(snapshot);
    if let Some((stop, number)) = stop_of(snapshot).filter(|_| verdict.kind != VerdictKind::Stopped) {
        let stop = of_stop(snapshot, stop, number);
        verdict.text += &format!("; {}", stop.text);
        verdict.way_out = stop.way_out;
    }
    verdict
}

/// The first kind that applies.
fn first(snapshot: &Snapshot) -> Verdict {
    let found = |is: &dyn Fn(&&Finding) -> bool| snapshot.findings.iter().find(is).cloned();
    let nobody = |finding: &&Finding| finding.kind.is_unwoken();
    let hang = found(&|finding| finding.kind.is_hang() && finding.certainty > Certainty::Possible);
    if let Some(finding) = hang.or_else(|| found(&|finding| finding.kind.is_hang() && stop_of(snapshot).is_none())) {
        return of_hang(&finding);
    }
    if let Some(finding) = found(&nobody) {
        let hanging = |it: &Finding| it.threads.iter().chain(&it.behind).copied().collect::<Vec<_>>();
        let threads: BTreeSet<_> = snapshot.findings.iter().filter(nobody).flat_map(hanging).collect();
        let text = format!("nobody is left to wake {}: {}", count(threads.len(), "thread", "threads"), finding.text);
        return of(VerdictKind::NobodyLeft, finding.certainty, text);
    }
    if let Some((stop, number)) = stop_of(snapshot) {
        return of_stop(snapshot, stop, number);
    }
    if let Some(finding) = found(&|finding| is_behind(snapshot, finding)) {
        let text = format!("{}{}", finding.text, times(&finding, snapshot));
        let kind = if finding.kind == FindingKind::HolderUnknown { VerdictKind::Unknown } else { VerdictKind::Behind };
        return of(kind, finding.certainty, text);
    }
    let running: Vec<&Thread> = snapshot.threads.iter().filter(|thread| runs(thread)).collect();
    if !running.is_empty() {
        return of_running(snapshot, &running);
    }
    if let Some(finding) = found(&|finding| finding.kind == FindingKind::HandedOver) {
        return of(VerdictKind::Behind, finding.certainty, finding.text);
    }
    of_waiting(snapshot)
}

fn of(kind: VerdictKind, certainty: Certainty, text: String) -> Verdict {
    Verdict { kind, certainty, text, way_out: None }
}

fn of_hang(finding: &Finding) -> Verdict {
    let kind = match finding.kind {
        FindingKind::OwnerExited | FindingKind::OwnerIsForkParent => VerdictKind::NobodyLeft,
        _ => VerdictKind::Deadlock,
    };
    let behind = match finding.behind.len() {
        0 => String::new(),
        number => format!("; {} behind", count(number, "more thread waits", "more threads wait")),
    };
    let text = match finding.kind {
        FindingKind::Deadlock => format!("{} threads wait for each other{behind}", finding.threads.len()),
        _ => format!("{}{behind}", finding.text),
    };
    of(kind, finding.certainty, text)
}

/// Whether threads wait behind one by more than a join.
fn is_behind(snapshot: &Snapshot, finding: &Finding) -> bool {
    let is_join = |address| {
        snapshot.objects.iter().any(|object| Some(&object.address) == address && object.kind == SyncKind::Join)
    };
    match finding.kind {
        FindingKind::HolderUnknown => true,
        FindingKind::LongChain => !is_join(finding.objects.last()),
        _ => false,
    }
}

/// In how many looks, where there were several.
fn times(finding: &Finding, snapshot: &Snapshot) -> String {
    match snapshot.looks {
        0 | 1 => String::new(),
        looks if looks == finding.seen => format!(" (in all {looks} looks)"),
        looks => format!(" (in {} of {looks} looks)", finding.seen),
    }
}

/// What stops most of the threads, and how many.
fn stop_of(snapshot: &Snapshot) -> Option<(&Stop, usize)> {
    let stops: Vec<&Stop> = snapshot.threads.iter().filter_map(|thread| thread.stop.as_ref()).collect();
    Some((*stops.first()?, stops.len()))
}

fn of_stop(snapshot: &Snapshot, stop: &Stop, number: usize) -> Verdict {
    let pid = snapshot.target.pid;
    let living = snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie).count();
    let who = match (number, living) {
        (number, living) if number == living => "all threads are".to_owned(),
        (1, living) => format!("1 of {living} threads is"),
        (number, living) => format!("{number} of {living} threads are"),
    };
    let way_out = match (stop.kind, stop.pid) {
        (StopKind::JobControl, _) => Some(format!("kill -CONT {pid}")),
        (StopKind::Traced, _) => Some("let the debugger continue the process, or detach it".to_owned()),
        (StopKind::Suspended, Some(by)) => Some(format!("kill {by}")),
        (StopKind::Suspended, None) => None,
        (StopKind::Frozen, _) => stop.by.clone(),
    };
    let signal = if stop.kind == StopKind::JobControl { " (SIGSTOP or another stop signal)" } else { "" };
    Verdict { way_out, ..of(VerdictKind::Stopped, Certainty::Certain, format!("{who} {}{signal}", stop.text())) }
}

fn runs(thread: &Thread) -> bool {
    matches!(thread.state, ThreadState::Active | ThreadState::Run) && thread.stop.is_none()
}

fn of_running(snapshot: &Snapshot, running: &[&Thread]) -> Verdict {
    let mut places: Vec<String> = running.iter().take(NAMED).map(|thread| running_where(thread)).collect();
    if running.len() > NAMED {
        places.push("..".to_owned());
    }
    let waiting = snapshot.threads.iter().filter(|thread| thread.state == ThreadState::Sleep).count();
    let rest = match waiting {
        0 => String::new(),
        number => format!("; {}", count(number, "other thread waits", "other threads wait")),
    };
    let runs = count(running.len(), "thread runs", "threads run");
    of(VerdictKind::Busy, Certainty::Certain, format!("{runs}: {}{rest}", places.join(", ")))
}

/// `worker (4711)`
fn name_of(thread: &Thread) -> String {
    match (&thread.name, thread.lwp) {
        (Some(name), Some(lwp)) => format!("{name} ({lwp})"),
        (Some(name), None) => name.clone(),
        (None, Some(lwp)) => format!("thread {lwp}"),
        (None, None) => "a thread".to_owned(),
    }
}

/// `worker (4711) in crunch (work.c:12)`
fn running_where(thread: &Thread) -> String {
    let name = name_of(thread);
    let queued = if thread.state == ThreadState::Run { ", which gets no CPU," } else { "" };
    let spins = thread.watched.as_ref().and_then(|watched| watched.spins.as_ref());
    let spins = spins.map(|spin| format!(" {}", spinning(spin))).unwrap_or_default();
    match place_of(thread) {
        Some(place) => format!("{name}{queued}{spins} in {place}"),
        None => format!("{name}{queued}").trim_end_matches(',').to_owned(),
    }
}

/// `spins on spinlock table_lock`
pub(super) fn spinning(spin: &Spin) -> String {
    match (spin.yields, spin.word, &spin.name) {
        (true, ..) => "calls sched_yield again and again".to_owned(),
        (false, Some(_), Some(name)) => format!("spins on {name}"),
        (false, Some(word), None) => format!("spins on the word at {word}"),
        (false, None, _) => "spins".to_owned(),
    }
}

/// The innermost function of the program that a thread is in.
pub(super) fn place_of(thread: &Thread) -> Option<String> {
    own_frames(&thread.frames).next().or(thread.frames.first()).map(place)
}

fn place(frame: &Frame) -> String {
    let function = match (&frame.function, &frame.module) {
        (Some(function), _) => function.clone(),
        (None, Some(module)) => format!("{module}+{:#x}", frame.offset.unwrap_or_default()),
        (None, None) => frame.pc.to_string(),
    };
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{function} ({file}:{line})")
        }
        _ => function,
    }
}

/// No thread runs, and none is behind another one's lock.
fn of_waiting(snapshot: &Snapshot) -> Verdict {
    let threads: Vec<String> = snapshot
        .groups
        .iter()
        .take(NAMED)
        .map(|group| format!("{} {}", count(group.threads.len(), "thread is", "threads are"), group.what))
        .collect();
    let more = if snapshot.groups.len() > NAMED { ", .." } else { "" };
    let what = format!("{}{more}", threads.join(", "));
    let is_blind = !matches!(snapshot.target.libc, Libc::Glibc { .. });
    let on_words = snapshot
        .groups
        .iter()
        .any(|group| group.kind == Some(SyncKind::Futex) || is_blind && group.call.as_deref() == Some("futex"));
    if is_blind && on_words {
        let text = format!("this program has no glibc, so its locks cannot be read: {what}");
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    let wants_lock = |kind| matches!(kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once);
    if snapshot.groups.iter().any(|group| group.kind.is_some_and(wants_lock)) {
        let text = format!("threads wait for locks that nobody was seen to hold: {what}");
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    let leaves = |thread: &&Thread| thread.waits_outside.as_ref().is_some_and(|wait| !wait.partners.is_empty());
    if let Some(thread) = snapshot.threads.iter().find(leaves)
        && let (Some(call), Some(wait)) = (&thread.syscall, &thread.waits_outside)
    {
        let others = match snapshot.threads.iter().filter(leaves).count() {
            1 => String::new(),
            number => format!(
                "; {}",
                count(number - 1, "more thread waits for another process", "more threads wait for other processes")
            ),
        };
        let text = format!("{} is {}: {}{others}", name_of(thread), calls::doing(call), wait.text);
        return of(VerdictKind::OtherProcess, Certainty::Certain, text);
    }
    let all = snapshot.threads.iter().all(|thread| is_idle(thread) || thread.state == ThreadState::Zombie);
    let who = if all { "all threads wait for work" } else { "no thread runs" };
    of(VerdictKind::Idle, Certainty::Certain, format!("{who}: {what}"))
}
