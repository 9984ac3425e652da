//! The answer in one sentence.

use super::calls;
use super::groups::is_idle;
use super::remaining;
use super::words::count;
use crate::Lwp;
use crate::look::own_frames;
use crate::model::{
    BackgroundJob, Certainty, Direction, Finding, FindingKind, Frame, LanguageRuntime, Libc, NamedProcess, OutsideKind,
    OutsideWait, Snapshot, Spin, Stop, StopKind, SyncKind, SyncObject, Thread, ThreadState, Verdict, VerdictKind,
    WaitGroup,
};
use crate::runtimes::{self, Nature};
use std::collections::{BTreeMap, BTreeSet};

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
    let is_pool = |finding: &&Finding| finding.kind == FindingKind::PoolStarved;
    // Whose tasks may wait for others: that is told, and no more.
    let nobody = |finding: &&Finding| {
        finding.kind.is_unwoken() && !(is_pool(finding) && finding.certainty == Certainty::Possible)
    };
    let hang = found(&|finding| finding.kind.is_hang() && finding.certainty > Certainty::Possible);
    // A circle that only may be one says less than that nobody is left, if that is for certain.
    let nobody_certain = found(&|finding| nobody(finding) && finding.certainty == Certainty::Certain);
    let possible = || found(&|finding| finding.kind.is_hang() && stop_of(snapshot).is_none());
    if let Some(finding) = hang.or_else(|| possible().filter(|_| nobody_certain.is_none())) {
        return of_hang(&finding);
    }
    if let Some(finding) = nobody_certain.or_else(|| found(&nobody)) {
        let hanging = |it: &Finding| it.threads.iter().chain(&it.behind).copied().collect::<Vec<_>>();
        let threads: BTreeSet<_> = snapshot.findings.iter().filter(nobody).flat_map(hanging).collect();
        let starves = found(&is_pool).filter(|pool| *pool != finding).map(|pool| format!("; {}", pool.text));
        let all = match threads.len() {
            number if number > finding.threads.len() => format!("{number} threads hang: "),
            _ => String::new(),
        };
        let text = format!("{all}{}{}", finding.text, starves.unwrap_or_default());
        return of(VerdictKind::NobodyLeft, finding.certainty, text);
    }
    if let Some((stop, number)) = stop_of(snapshot) {
        return of_stop(snapshot, stop, number);
    }
    if let Some(verdict) = of_unkillable(snapshot) {
        return verdict;
    }
    if let Some(finding) = found(&|finding| finding.kind == FindingKind::BlockedWorker) {
        return of(VerdictKind::Behind, finding.certainty, finding.text);
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
    let verdict = of_waiting(snapshot);
    match found(&is_pool) {
        Some(pool) if verdict.kind == VerdictKind::Idle => of(VerdictKind::Unknown, pool.certainty, pool.text),
        _ => verdict,
    }
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

/// Threads that have been in the kernel for long, where no signal wakes them. For a moment every program is there.
fn of_unkillable(snapshot: &Snapshot) -> Option<Verdict> {
    /// From how long on that is worth to be told, in milliseconds.
    const LONG_MS: u64 = 1000;
    let deep: BTreeMap<Lwp, &OutsideWait> = snapshot
        .threads
        .iter()
        .filter_map(|thread| Some((thread.lwp?, thread.waits_outside.as_deref()?)))
        .filter(|(_, wait)| wait.kind == OutsideKind::Disk)
        .collect();
    let long =
        |group: &&WaitGroup| group.threads.iter().any(|lwp| deep.contains_key(lwp)) && group.oldest_ms >= Some(LONG_MS);
    let group = snapshot.groups.iter().filter(long).max_by_key(|group| group.oldest_ms)?;
    let wait = group.threads.iter().find_map(|lwp| deep.get(lwp))?;
    let text = format!(
        "{} inside the kernel where no signal wakes it (D state), for {} s: {}",
        count(deep.len(), "thread is", "threads are"),
        group.oldest_ms? / 1000,
        wait.text
    );
    Some(of(VerdictKind::Unkillable, Certainty::Certain, text))
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
        2 if finding.seen == 2 => " (in both looks)".to_owned(),
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
        // To continue it would stop it again: it still wants the terminal, and is still in the background.
        (StopKind::JobControl, _) if stop.background.is_some() => {
            let leader = stop.background.as_ref().and_then(|job| job.leader.as_ref());
            let shell = leader.map(|leader| format!(" in {}", of_process(leader))).unwrap_or_default();
            Some(format!("fg{shell}, which gives it the terminal"))
        }
        (StopKind::JobControl, _) => Some(format!("kill -CONT {pid}")),
        (StopKind::Traced, _) => Some("let the debugger continue the process, or detach it".to_owned()),
        (StopKind::Suspended, Some(by)) => Some(format!("kill {by}")),
        (StopKind::Suspended, None) => None,
        (StopKind::Frozen, _) => stop.by.clone(),
    };
    let is_unknown = stop.kind == StopKind::JobControl && stop.signal.is_none() && stop.background.is_none();
    let signal = if is_unknown { " (SIGSTOP or another stop signal)" } else { "" };
    let background = stop.background.as_ref().map(of_background).unwrap_or_default();
    let text = format!("{who} {}{signal}{background}", stop.text());
    Verdict { way_out, ..of(VerdictKind::Stopped, Certainty::Certain, text) }
}

/// What a job in the background waits for.
fn of_background(job: &BackgroundJob) -> String {
    let wants = if job.reads { "wants to read from" } else { "wants to write to, or to change," };
    let names: Vec<String> = job.foreground.iter().map(of_process).collect();
    let foreground = match names.is_empty() {
        true => "no process has the foreground".to_owned(),
        false => format!("the foreground has {}", names.join(", ")),
    };
    format!(": a background job that {wants} its terminal {}; {foreground}", job.terminal)
}

/// `bash (pid 4711)`
fn of_process(process: &NamedProcess) -> String {
    format!("{} (pid {})", process.name.as_deref().unwrap_or("process"), process.pid)
}

fn runs(thread: &Thread) -> bool {
    // Who polls mostly sleeps.
    matches!(thread.state, ThreadState::Active | ThreadState::Run) && thread.stop.is_none() && thread.polls.is_none()
}

fn of_running(snapshot: &Snapshot, running: &[&Thread]) -> Verdict {
    let mut groups: BTreeMap<String, Vec<&Thread>> = BTreeMap::new();
    for thread in running {
        groups.entry(doing_where(thread)).or_default().push(thread);
    }
    let mut groups: Vec<(String, Vec<&Thread>)> = groups.into_iter().collect();
    groups.sort_by_key(|(doing, threads)| (doing.is_empty(), std::cmp::Reverse(threads.len())));
    let is_one = groups.len() == 1;
    let place = |(doing, threads): &(String, Vec<&Thread>)| match threads.as_slice() {
        [thread] => running_where(thread),
        many if doing.is_empty() => format!("{} that were not sampled", many.len()),
        _ if is_one => format!("all of them{}", of_several(doing)),
        many => format!("{} of them{}", many.len(), of_several(doing)),
    };
    let mut places: Vec<String> = groups.iter().take(NAMED).map(place).collect();
    if groups.len() > NAMED {
        places.push("..".to_owned());
    }
    let waiting = snapshot.threads.iter().filter(|thread| thread.state == ThreadState::Sleep).count();
    let rest = match waiting {
        0 => String::new(),
        number => format!("; {}", count(number, "other thread waits", "other threads wait")),
    };
    let runs = count(running.len(), "thread runs", "threads run");
    let nothing_known = is_one && running.len() > 1 && groups.iter().all(|(doing, _)| doing.is_empty());
    let places = if nothing_known { String::new() } else { format!(": {}", places.join(", ")) };
    of(VerdictKind::Busy, Certainty::Certain, format!("{runs}{places}{rest}"))
}

/// `worker (4711)`
pub(super) fn name_of(thread: &Thread) -> String {
    match (&thread.name, thread.lwp) {
        (Some(name), Some(lwp)) => format!("{name} ({lwp})"),
        (Some(name), None) => name.clone(),
        (None, Some(lwp)) => format!("thread {lwp}"),
        (None, None) => "a thread".to_owned(),
    }
}

/// `worker (4711) in crunch (work.c:12)`
fn running_where(thread: &Thread) -> String {
    // One that was sampled has run since.
    let is_queued = thread.state == ThreadState::Run && thread.watched.is_none();
    let queued = if is_queued { ", which gets no CPU," } else { "" };
    format!("{}{queued}{}", name_of(thread), doing_where(thread)).trim_end_matches(',').to_owned()
}

/// ` spins on ready in wait_for (work.c:40)`; nothing where that is not known.
fn doing_where(thread: &Thread) -> String {
    let spins = thread.spin().map(|spin| format!(" {}", spinning(spin))).unwrap_or_default();
    place_of(thread).map(|place| format!("{spins} in {place}")).unwrap_or_default()
}

/// The same of several threads: ` spin on ready ..`.
fn of_several(doing: &str) -> String {
    let verb = [(" spins", " spin"), (" polls", " poll"), (" calls", " call")].into_iter();
    let mut several = verb.filter_map(|(one, many)| Some(format!("{many}{}", doing.strip_prefix(one)?)));
    several.next().unwrap_or_else(|| doing.to_owned())
}

/// `spins on spinlock table_lock`, `polls ready, sleeping in between`
pub(super) fn spinning(spin: &Spin) -> String {
    let verb = if spin.sleeps { "polls" } else { "spins on" };
    let on = match (spin.word, &spin.name) {
        (Some(_), Some(name)) => format!("{verb} {name}"),
        (Some(word), None) => format!("{verb} the word at {word}"),
        (None, _) if spin.yields => return "calls sched_yield again and again".to_owned(),
        (None, _) => return "goes round in a loop that nothing ends".to_owned(),
    };
    let holder = spin.held_by.map_or_else(String::new, |lwp| format!(", held by thread {lwp}"));
    match (spin.sleeps, spin.yields) {
        (true, _) => format!("{on}{holder}, sleeping in between"),
        (false, true) => format!("{on}{holder} (calling sched_yield)"),
        (false, false) => format!("{on}{holder}"),
    }
}

/// The innermost function of the program that a thread is in.
pub(crate) fn place_of(thread: &Thread) -> Option<String> {
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

/// What only the language knows, and who tells it.
fn unseen(runtime: &LanguageRuntime) -> String {
    let tool = runtime.tool.as_ref().map_or_else(String::new, |tool| format!(" ({tool} shows that)"));
    format!("not seen from here: {}{tool}", runtime.unseen)
}

/// The language that alone knows who could end the wait of a thread, which does not end by itself.
fn blind(snapshot: &Snapshot) -> Option<&LanguageRuntime> {
    let is_unseen = |object: &SyncObject| matches!(runtimes::nature(object.kind, object.family), Nature::Unseen(_));
    let lasts = |object: &SyncObject| object.waiters.iter().any(|waiter| !waiter.timed);
    let object = snapshot.objects.iter().find(|object| is_unseen(object) && lasts(object))?;
    let name = runtimes::language_of(object.family)?;
    snapshot.runtimes.iter().find(|runtime| runtime.name == name)
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
    if let Some(unread) = snapshot.runtimes.iter().find(|runtime| !runtime.is_read) {
        let text =
            format!("this program runs {}, which has its own way to wait: {what}; {}", unread.name, unseen(unread));
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    let is_blind = !matches!(snapshot.target.libc, Libc::Glibc { .. } | Libc::Musl);
    let on_words = snapshot
        .groups
        .iter()
        .any(|group| group.kind == Some(SyncKind::Futex) || is_blind && group.call.as_deref() == Some("futex"));
    if is_blind && on_words {
        let text = format!("this program has no glibc or musl, so its locks cannot be read: {what}");
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    let wants_lock = |kind| matches!(kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once);
    if snapshot.groups.iter().any(|group| group.kind.is_some_and(wants_lock)) {
        let text = format!("threads wait for locks that nobody was seen to hold: {what}");
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    let wants = |thread: &&Thread| thread.polls.as_ref().is_some_and(|spin| spin.held_by.is_some());
    if let Some(thread) = snapshot.threads.iter().find(wants) {
        let others = match snapshot.threads.iter().filter(wants).count() {
            1 => String::new(),
            number => format!("; {}", count(number - 1, "other thread polls a lock", "other threads poll locks")),
        };
        return of(
            VerdictKind::Behind,
            Certainty::Likely,
            format!("{}{}{others}", name_of(thread), doing_where(thread)),
        );
    }
    // Nobody is there yet who could open the other end of a FIFO.
    let opens_fifo = |thread: &Thread, wait: &OutsideWait| {
        wait.kind == OutsideKind::Pipe && thread.syscall.as_ref().is_some_and(|call| call.name.starts_with("open"))
    };
    // Who has taken a semaphore may have ended: then there is none to be named, and that is worth to be told.
    let is_taken = |thread: &Thread, wait: &OutsideWait| {
        let doing = thread.syscall.as_ref().map(calls::doing).unwrap_or_default();
        let is_about_room = wait.kind == OutsideKind::MessageQueue && wait.direction == Some(Direction::Output);
        (wait.kind == OutsideKind::Semaphore || is_about_room) && !wait.text.starts_with(&doing)
    };
    let leads_out = |thread: &Thread, wait: &OutsideWait| {
        !wait.timed && (!wait.partners.is_empty() || opens_fifo(thread, wait) || is_taken(thread, wait))
    };
    // An event loop is idle, whoever may write to it next, unless somebody owes it an answer.
    let is_loop = |thread: &Thread| thread.syscall.as_ref().is_some_and(|call| call.name.starts_with("epoll_"));
    let leaves = |thread: &&Thread| {
        thread
            .waits_outside
            .as_deref()
            .is_some_and(|wait| leads_out(thread, wait) && (wait.owed_by.is_some() || !is_loop(thread)))
    };
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
    let is_posted = |object: &&SyncObject| object.kind == SyncKind::Semaphore && object.shared == Some(true);
    let lasts = |object: &&SyncObject| object.waiters.iter().any(|waiter| !waiter.timed);
    if snapshot.objects.iter().filter(is_posted).any(|object| lasts(&object)) {
        let why = "a semaphore that is shared with other processes does not record who has taken it";
        return of(VerdictKind::Unknown, Certainty::Possible, format!("no thread runs: {what}; {why}"));
    }
    if let Some(runtime) = blind(snapshot) {
        let text = format!("no thread runs: {what}; {}", unseen(runtime));
        return of(VerdictKind::Unknown, Certainty::Possible, text);
    }
    // A word of which only the address is known may be a lock as well as work to come.
    let how = |address| {
        let waits = snapshot.threads.iter().filter_map(|thread| thread.waits_for.as_ref());
        waits.filter(move |waits| waits.address == address).any(|waits| waits.how.is_some())
    };
    let is_bare = |object: &&SyncObject| object.kind == SyncKind::Futex && lasts(object) && !how(object.address);
    if snapshot.objects.iter().any(|object| is_bare(&object)) {
        let why = "of a word that threads wait on it is not known what it is";
        return of(VerdictKind::Unknown, Certainty::Possible, format!("no thread runs: {what}; {why}"));
    }
    let all = snapshot.threads.iter().all(|thread| is_idle(thread) || thread.state == ThreadState::Zombie);
    let who = if all { "all threads wait for work" } else { "no thread runs" };
    let left = remaining::text(snapshot).map_or_else(String::new, |left| format!("; {left}"));
    of(VerdictKind::Idle, Certainty::Certain, format!("{who}: {what}{left}"))
}

#[cfg(test)]
mod tests {
    use super::of_several;

    #[test]
    fn one_and_several() {
        assert_eq!(of_several(" spins on ready in wait"), " spin on ready in wait");
        assert_eq!(
            of_several(" calls sched_yield again and again in wait"),
            " call sched_yield again and again in wait"
        );
        assert_eq!(of_several(" in crunch (work.c:12)"), " in crunch (work.c:12)");
    }
}
