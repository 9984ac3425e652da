//! The screens of `tglass set`.

use super::sync::{holder, label, state, thread_name};
use super::{BAD, BOLD, DIM, FAIR, GOOD, paint, safe};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use threadglass::act::set_state::{Applied, FoundLock, Kicked, Sharers};
use threadglass::model::{Evidence, SetPlan as Plan, Side, WordWrite};
use threadglass::{Lwp, RemoteAddr, syscall_name};

/// Threads listed by name.
const LISTED: usize = 8;

/// What is to be done, and what was.
pub struct Report<'a> {
    /// The object.
    pub found: &'a FoundLock,
    /// What is to be written.
    pub plan: &'a Plan,
    /// Waiters in other processes.
    pub sharers: &'a Sharers,
    /// The code of this picture.
    pub seen: &'a str,
    /// What was done, if it was.
    pub done: Option<Done>,
}

/// What was done.
pub struct Done {
    /// The writing.
    pub applied: Applied,
    /// The waking.
    pub kicked: Kicked,
    /// Where it is written down; `None` when nothing was written.
    pub journal: Option<PathBuf>,
    /// The object afterwards.
    pub now: Option<FoundLock>,
}

/// What will be written, who wakes, what may break.
pub fn intention(report: &Report<'_>) -> String {
    let Report { found, plan, sharers, .. } = report;
    let object = &found.object;
    let mut out = super::target::name(&found.snapshot.target) + "\n";
    let inferred = if object.evidence >= Evidence::Inferred { " (its kind was not checked)" } else { "" };
    line(&mut out, "lock", &format!("{}: {}{inferred}", label(object), state(object)));
    let holders: Vec<String> = object
        .holders
        .iter()
        .map(|one| holder(one, one.lwp.filter(|_| one.pid.is_none()).and_then(|lwp| name(found, lwp))))
        .collect();
    match holders.as_slice() {
        [] if object.state.is_held() => line(&mut out, "held by", "no known thread"),
        [] => {}
        holders => line(&mut out, "held by", &listed(holders)),
    }
    let mut waiters: Vec<String> = object
        .waiters
        .iter()
        .map(|waiter| {
            let side = match waiter.side {
                Some(Side::Read) => ", to read",
                Some(Side::Write) => ", to write",
                None => "",
            };
            who(found, waiter.lwp) + side
        })
        .collect();
    waiters.extend(sharers.waiters.iter().map(|(pid, lwp)| format!("lwp {lwp} of process {pid}")));
    if !waiters.is_empty() {
        line(&mut out, "waited for", &format!("by {}", listed(&waiters)));
    }
    out.push('\n');
    match plan.words.as_slice() {
        [] => line(&mut out, "writes", &format!("nothing: it is already {}", plan.becomes)),
        words => {
            line(&mut out, "becomes", &plan.becomes);
            out += &writes(plan.address, words);
        }
    }
    let mut wakes: Vec<String> = plan.kick.iter().map(|lwp| who(found, *lwp)).collect();
    let elsewhere = sharers.waiters.iter().filter(|_| plan.wakes);
    wakes.extend(elsewhere.map(|(pid, lwp)| format!("lwp {lwp} of process {pid}")));
    if !wakes.is_empty() {
        line(&mut out, "wakes", &listed(&wakes));
    }
    if sharers.unread > 0 {
        let text = format!("{} other processes cannot be looked at: their waiters are not woken", sharers.unread);
        line(&mut out, "not known", &text);
    }
    if !plan.consequences.is_empty() {
        out += &format!("\n{}\n", paint(FAIR, "what may break"));
        for sentence in &plan.consequences {
            let _ = writeln!(out, "  - {}", safe(sentence));
        }
    }
    out
}

/// The end of a screen that only shows.
pub fn dry_run(report: &Report<'_>) -> String {
    let Report { plan, found, .. } = report;
    let kind = if found.object.evidence >= Evidence::Inferred {
        format!(" --kind {}", plan.kind.word())
    } else {
        String::new()
    };
    format!(
        "\n{}: nothing was written. To do this, and only if nothing has changed by then:\n  tglass set {} {} {}{kind} --yes --seen {}\n",
        paint(BOLD, "dry run"),
        found.snapshot.target.pid,
        plan.address,
        plan.value,
        report.seen
    )
}

/// What was done.
pub fn outcome(report: &Report<'_>, done: &Done) -> String {
    let mut out = String::from("\n");
    let found = report.found;
    let words = match done.applied.words {
        0 => "nothing had to be written".to_owned(),
        1 => "1 word written".to_owned(),
        words => format!("{words} words written"),
    };
    let woken = match done.kicked.kicked.len() {
        0 => String::new(),
        1 => ", 1 thread woken".to_owned(),
        woken => format!(", {woken} threads woken"),
    };
    let _ = writeln!(
        out,
        "{}: {words}{woken} ({} us pause in all, {} us at most for one)",
        paint(GOOD, "done"),
        micros(done.kicked.total),
        micros(done.kicked.longest)
    );
    for not in &done.kicked.not_kicked {
        let _ = writeln!(
            out,
            "  {}: lwp {} of process {}: {}; it sees the change when it wakes by itself",
            paint(BAD, "not woken"),
            not.lwp,
            not.pid,
            safe(&not.why)
        );
    }
    for (lwp, call) in &done.kicked.interrupted {
        let call = syscall_name(*call).unwrap_or("a system call");
        let _ = writeln!(out, "  note: the stop made {call} of {} return EINTR", who(found, *lwp));
    }
    if let Some(now) = &done.now {
        let holders: Vec<String> =
            now.object.holders.iter().filter_map(|holder| holder.lwp).map(|lwp| who(now, lwp)).collect();
        let by = if holders.is_empty() { String::new() } else { format!(", held by {}", listed(&holders)) };
        line(&mut out, "now", &format!("{}{by}", state(&now.object)));
    }
    if let Some(journal) = &done.journal {
        let path = safe(&journal.to_string_lossy());
        line(&mut out, "journal", &path);
        line(&mut out, "undo", &format!("tglass set --undo {path} --yes   (as long as nobody has used the new state)"));
    }
    out
}

/// What an undo writes, or has written.
pub fn undo(plan: &Plan, journal: &Path, kicked: Option<&Kicked>) -> String {
    let mut out = format!("{} at {}\n", plan.kind.word(), plan.address);
    line(&mut out, "becomes", &plan.becomes);
    out += &writes(plan.address, &plan.words);
    match kicked {
        None => {
            out + &format!(
                "\n{}: nothing was written. To do this:\n  tglass set --undo {} --yes\n",
                paint(BOLD, "dry run"),
                safe(&journal.to_string_lossy())
            )
        }
        Some(kicked) => {
            out + &format!(
                "\n{}: the old state is restored ({} us pause)\n",
                paint(GOOD, "undone"),
                micros(kicked.total)
            )
        }
    }
}

/// A time in whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn writes(object: RemoteAddr, words: &[WordWrite]) -> String {
    let mut out = String::new();
    for (index, word) in words.iter().enumerate() {
        let title = if index == 0 { "writes" } else { "" };
        let at = format!("+{}", word.address.0.wrapping_sub(object.0));
        line(&mut out, title, &format!("{:<14} {at:>3}  {:#x} -> {:#x}", word.field, word.old, word.new));
    }
    out
}

fn line(out: &mut String, title: &str, text: &str) {
    let _ = writeln!(out, "  {}{text}", paint(DIM, &format!("{title:<12}")));
}

fn name(found: &FoundLock, lwp: Lwp) -> Option<String> {
    found.snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp)).map(thread_name)
}

fn who(found: &FoundLock, lwp: Lwp) -> String {
    name(found, lwp).unwrap_or_else(|| format!("lwp {lwp}"))
}

fn listed(all: &[String]) -> String {
    match all.len() {
        number if number > LISTED => format!("{} .. ({number})", all[..LISTED].join("; ")),
        _ => all.join("; "),
    }
}
