//! The screen of `tglass diff`: what stands first.

use super::sync::duration;
use super::{BAD, BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use std::collections::BTreeMap;
use std::time::Duration;
use threadglass::Lwp;
use threadglass::look::library_of;
use threadglass::model::{
    DiffSide, FindingChange, LockChange, LockDiff, LockUse, SnapshotDiff, TaskChange, TaskDiff, TaskPlace,
    ThreadChange, ThreadDiff, ThreadPlace,
};

/// Threads of one sort, and locks, that are listed.
const THREADS: usize = 12;
const LOCKS: usize = 8;
/// Frames of the program that are shown of a thread.
const FRAMES: usize = 2;

/// The whole screen. `all` lists every thread and lock.
pub fn text(diff: &SnapshotDiff, all: bool, width: Option<usize>) -> String {
    let most = |number: usize| if all { usize::MAX } else { number };
    let process = format!("{} (pid {})", safe(&diff.target.name), diff.target.pid);
    let mut out = format!("{}  two snapshots, {} apart\n", paint(BOLD, &process), apart(diff.apart_ms));
    out += &side("before", &diff.before);
    out += &side("after", &diff.after);
    out.push('\n');
    for finding in &diff.findings {
        let style = match finding.change {
            FindingChange::Stays => BAD,
            FindingChange::New => FAIR,
            FindingChange::Gone => GOOD,
        };
        out += &format!("{}  {}\n", paint(style, finding.change.word()), safe(&finding.text));
    }
    if !diff.findings.is_empty() {
        out.push('\n');
    }
    for change in ThreadChange::ALL {
        out += &threads(diff, change, most(THREADS), width);
    }
    for change in TaskChange::ALL {
        out += &tasks(diff, change, most(THREADS), width);
    }
    out += &locks(diff, most(LOCKS));
    for file in diff.files.iter().take(most(LOCKS)) {
        out += &format!("{}  {}\n", paint(FAIR, "other code"), safe(file));
    }
    fit::wrapped(out + &gaps::text(&diff.gaps), width)
}

fn apart(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        _ => duration(ms),
    }
}

fn side(what: &str, side: &DiffSide) -> String {
    let verdict = side.verdict.as_ref().map_or_else(|| "no answer".to_owned(), |verdict| safe(&verdict.text));
    let file = paint(DIM, &super::snapshot::file(&side.snapshot));
    format!("{} {file}\n  {verdict}\n", paint(DIM, &format!("{what:<6}")))
}

fn heading(change: ThreadChange, number: usize) -> String {
    let threads = if number == 1 { "thread" } else { "threads" };
    match change {
        ThreadChange::Stands if number == 1 => "1 thread stands: it has not run at all".to_owned(),
        ThreadChange::Stands => format!("{number} {threads} stand: they have not run at all"),
        ThreadChange::Moved => format!("{number} {threads} ran"),
        ThreadChange::New => format!("{number} {threads} new"),
        ThreadChange::Ended => format!("{number} {threads} ended"),
        ThreadChange::Unknown => format!("{number} {threads} of which it is not known whether they ran"),
    }
}

fn threads(diff: &SnapshotDiff, change: ThreadChange, most: usize, width: Option<usize>) -> String {
    let threads: Vec<&ThreadDiff> = diff.threads.iter().filter(|thread| thread.change == change).collect();
    if threads.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", paint(BOLD, &heading(change, threads.len())));
    // Those that stand at one place are one line: a pool has hundreds.
    let mut groups: Vec<(Vec<&ThreadDiff>, String)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for thread in threads {
        let place =
            thread.after.as_ref().or(thread.before.as_ref()).map(|place| place_text(place, width)).unwrap_or_default();
        let key = if change == ThreadChange::Stands { place.clone() } else { format!("{} {place}", thread.lwp) };
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((group, _)) => group.push(thread),
            None => groups.push((vec![thread], place)),
        }
    }
    for (group, place) in groups.iter().take(most) {
        out += &format!("  {}{}\n{place}", who(group), how(group));
    }
    if let Some(rest @ [_, ..]) = groups.get(most..) {
        let number: usize = rest.iter().map(|(group, _)| group.len()).sum();
        out += &format!("  .. and {number} more (--all lists them)\n");
    }
    out + "\n"
}

fn who(group: &[&ThreadDiff]) -> String {
    let name = |thread: &ThreadDiff| match &thread.name {
        Some(name) => format!("{} ({})", safe(name), thread.lwp),
        None => format!("thread {}", thread.lwp),
    };
    let named: Vec<String> = group.iter().take(3).map(|thread| name(thread)).collect();
    let more = if group.len() > 3 { format!(" and {} more", group.len() - 3) } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// For how long it stood, or how much it ran.
fn how(group: &[&ThreadDiff]) -> String {
    let Some(first) = group.first() else { return String::new() };
    if let Some(stood) = group.iter().filter_map(|thread| thread.stood_ms).min() {
        return format!(": for at least {}", apart(stood));
    }
    let ran = first.ran_us.map(|us| format!("{:.1} ms of CPU time", Duration::from_micros(us).as_secs_f64() * 1e3));
    let turns = first.turns.map(|turns| format!("{turns} {} on a CPU", if turns == 1 { "turn" } else { "turns" }));
    let place = match first.change {
        ThreadChange::Moved if first.same_place => Some("back at the same place".to_owned()),
        _ => None,
    };
    let parts: Vec<String> = [ran, turns, place].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

/// What a thread waits for, and the first frames of the program.
fn place_text(place: &ThreadPlace, width: Option<usize>) -> String {
    let held = |by: &[Lwp]| match by {
        [] => String::new(),
        [one] => format!(", held by {one}"),
        several => format!(", held by {} threads", several.len()),
    };
    let waits = match (&place.waits_for, &place.waits_outside, &place.call) {
        (Some(waits), ..) => {
            let name = waits.name.as_ref().map_or_else(|| waits.address.to_string(), |name| safe(name));
            format!("waits for {} {name}{}", waits.kind.word(), held(&waits.held_by))
        }
        (None, Some(outside), Some(call)) => format!("in {}: {}", safe(call), safe(outside)),
        (None, Some(outside), None) => safe(outside),
        (None, None, Some(call)) => format!("in {}", safe(call)),
        (None, None, None) => place.state.word().to_owned(),
    };
    let mut out = format!("      {}\n", fit::cut_to(waits, width.map(|width| width.saturating_sub(6))));
    let own = place.frames.iter().filter(|frame| library_of(frame).is_none());
    for frame in own.take(FRAMES) {
        out += &format!("{}\n", fit::cut_to(format!("      {}", super::stacks::line(frame)), width));
    }
    out
}

fn tasks(diff: &SnapshotDiff, change: TaskChange, most: usize, width: Option<usize>) -> String {
    let groups: Vec<&TaskDiff> = diff.tasks.iter().filter(|group| group.change == change).collect();
    let number: usize = groups.iter().map(|group| group.tasks.len()).sum();
    let noun = if number == 1 { "task" } else { "tasks" };
    let heading = match change {
        _ if number == 0 => return String::new(),
        TaskChange::Stands => format!("{number} {noun} waited all the time"),
        TaskChange::SamePlace => format!("{number} {noun} where they were: they may have run in between"),
        TaskChange::Moved => format!("{number} {noun} elsewhere"),
        TaskChange::New => format!("{number} {noun} new"),
        TaskChange::Ended => format!("{number} {noun} ended"),
    };
    let mut out = format!("{}\n", paint(BOLD, &heading));
    for group in groups.iter().take(most) {
        let ids: Vec<String> = group.tasks.iter().take(6).map(super::tasks::number_of).collect();
        let more = if group.tasks.len() > ids.len() { " .." } else { "" };
        let stood = group.stood_ms.map(|ms| format!(": for at least {}", apart(ms))).unwrap_or_default();
        let number = if group.tasks.len() == 1 { "task".to_owned() } else { format!("{} tasks", group.tasks.len()) };
        out += &format!("  {number} of {}: {}{more}{stood}\n", group.runtime, ids.join(" "));
        match (&group.before, &group.after) {
            (Some(before), Some(after)) => {
                out += &task_place("was: ", before, width);
                out += &task_place("is: ", after, width);
            }
            (before, after) => {
                out += &after.as_ref().or(before.as_ref()).map_or_else(String::new, |it| task_place("", it, width))
            }
        }
    }
    if let Some(rest @ [_, ..]) = groups.get(most..) {
        let number: usize = rest.iter().map(|group| group.tasks.len()).sum();
        out += &format!("  .. and {number} more (--all lists them)\n");
    }
    out + "\n"
}

/// Why a task waits, and the first frames of the program.
fn task_place(label: &str, place: &TaskPlace, width: Option<usize>) -> String {
    let what = place.reason.as_deref().map_or_else(|| place.state.word().to_owned(), safe);
    let mut out = format!("      {label}{what}\n");
    let own = place.frames.iter().filter(|frame| super::tasks::is_of_program(frame));
    for frame in own.take(FRAMES) {
        out += &format!("{}\n", fit::cut_to(format!("      {}", super::stacks::line(frame)), width));
    }
    out
}

fn locks(diff: &SnapshotDiff, most: usize) -> String {
    if diff.locks.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", paint(BOLD, "locks"));
    for lock in diff.locks.iter().take(most) {
        out += &lock_line(lock);
    }
    if let Some(rest @ [_, ..]) = diff.locks.get(most..) {
        out += &format!("  .. and {} more (--all lists them)\n", rest.len());
    }
    out + "\n"
}

fn lock_line(lock: &LockDiff) -> String {
    let name = lock.name.as_ref().map_or_else(|| lock.address.to_string(), |name| safe(name));
    let holders = |side: &Option<LockUse>| {
        let held: Vec<String> = side.iter().flat_map(|lock| &lock.held_by).take(4).map(Lwp::to_string).collect();
        if held.is_empty() { "nobody".to_owned() } else { held.join(", ") }
    };
    let what = match lock.change {
        LockChange::Held => format!("held by {} in both", holders(&lock.after)),
        LockChange::HandedOver => format!("held by {}, then by {}", holders(&lock.before), holders(&lock.after)),
        LockChange::Taken => format!("held by {} now", holders(&lock.after)),
        LockChange::LetGo => format!("held by {} before", holders(&lock.before)),
        LockChange::Waited => "waited for".to_owned(),
    };
    let waiting = [&lock.before, &lock.after].map(|side| side.as_ref().map_or(0, |lock| lock.waiting.len()));
    let queue = match waiting {
        [0, 0] => String::new(),
        [one, other] if one == other => format!("; {one} waiting in both"),
        [one, other] => format!("; {one} waiting, then {other}"),
    };
    format!("  {} {name}: {what}{queue}\n", lock.kind.word())
}
