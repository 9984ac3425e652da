//! The screen of `tglass why`: the verdict first.

use super::sync::{holder, label, thread_name, waits_for};
use super::{BAD, BOLD, DIM, FAIR, GOOD, gaps, paint, safe};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use threadglass::Lwp;
use threadglass::model::{Certainty, Finding, FindingKind, Frame, Snapshot, SyncKind, SyncObject, Thread, ThreadState};
use threadglass::target::Library;

/// Frames shown of each thread.
const FRAMES: usize = 6;
/// Threads of one finding that are shown in full.
const THREADS: usize = 8;

/// Objects that threads queue for, and names of threads, that are listed.
const GROUPS: usize = 4;
const NAMED: usize = 4;

/// The whole screen.
pub fn text(snapshot: &Snapshot, took: Duration) -> String {
    let screen = Screen { snapshot };
    let mut out = super::threads::headline(snapshot, snapshot.threads.len(), took);
    let hangs: Vec<&Finding> = snapshot.findings.iter().filter(|finding| finding.kind.is_hang()).collect();
    for finding in &hangs {
        out += &screen.hang(finding);
    }
    if hangs.is_empty() {
        out += &screen.no_hang();
    }
    for finding in snapshot.findings.iter().filter(|finding| !finding.kind.is_hang()) {
        if finding.kind != FindingKind::LongChain {
            out += &format!("{}  {}\n\n", paint(FAIR, heading(finding.kind)), safe(&finding.text));
        }
    }
    out += &screen.next(&hangs);
    out + &gaps::text(&snapshot.gaps)
}

fn heading(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Deadlock => "DEADLOCK",
        FindingKind::SelfDeadlock => "SELF-DEADLOCK",
        FindingKind::RecursiveRead => "DEADLOCK BY READING TWICE",
        FindingKind::OwnerExited => "OWNER GONE",
        FindingKind::OwnerIsForkParent => "LOCKED BEFORE THE FORK",
        FindingKind::OwnerDied => "OWNER DIED",
        FindingKind::CondWithoutSignaller => "NOBODY LEFT TO SIGNAL",
        FindingKind::LongChain => "WAITS",
    }
}

struct Screen<'a> {
    snapshot: &'a Snapshot,
}

impl Screen<'_> {
    fn thread(&self, lwp: Lwp) -> Option<&Thread> {
        self.snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp))
    }

    fn object(&self, address: threadglass::RemoteAddr) -> Option<&SyncObject> {
        self.snapshot.objects.iter().find(|object| object.address == address)
    }

    fn hang(&self, finding: &Finding) -> String {
        let style = if finding.certainty == Certainty::Certain { BAD } else { FAIR };
        let objects = match finding.objects.len() {
            1 => "1 lock".to_owned(),
            number => format!("{number} locks"),
        };
        let threads = match finding.threads.len() {
            1 => "1 thread".to_owned(),
            number => format!("{number} threads"),
        };
        let behind = match finding.behind.len() {
            0 => String::new(),
            1 => "; 1 more thread queues behind".to_owned(),
            number => format!("; {number} more threads queue behind"),
        };
        let mut out = format!(
            "{}  {threads}, {objects}{behind}.  {}\n",
            paint(style.bold(), heading(finding.kind)),
            paint(style, finding.certainty.word())
        );
        if finding.kind != FindingKind::Deadlock {
            out += &format!("  {}\n", safe(&finding.text));
        }
        out.push('\n');
        for lwp in finding.threads.iter().take(THREADS) {
            out += &self.member(*lwp);
        }
        if let Some(more @ 1..) = finding.threads.len().checked_sub(THREADS) {
            out += &format!("  .. and {more} more\n");
        }
        out += &self.behind(&finding.behind);
        out
    }

    /// One thread: what it wants, what it holds, and where it is.
    fn member(&self, lwp: Lwp) -> String {
        let Some(thread) = self.thread(lwp) else { return format!("  thread {lwp}\n\n") };
        let mut out = format!("  {}\n", paint(BOLD, &thread_name(thread)));
        if let Some(waits) = &thread.waits_for {
            let object = self.object(waits.address);
            out += &format!("    waits {}\n", waits_for(waits, object));
            if let Some(object) = object {
                for owner in object.holders.iter().filter(|owner| owner.lwp != Some(lwp)) {
                    let name = owner.lwp.and_then(|lwp| self.thread(lwp)).map(thread_name);
                    out += &format!("    held by {}\n", holder(owner, name));
                }
            }
        }
        for held in &thread.holds {
            let object = self.object(held.address).map_or_else(|| held.address.to_string(), label);
            let how = if held.evidence == threadglass::model::Evidence::Inferred { " (inferred)" } else { "" };
            out += &format!("    holds {object}{how}\n");
        }
        out += &frames(&thread.frames);
        out.push('\n');
        out
    }

    /// Who queues behind, by what they wait for.
    fn behind(&self, lwps: &[Lwp]) -> String {
        let mut groups: BTreeMap<String, (usize, BTreeSet<&str>)> = BTreeMap::new();
        for lwp in lwps {
            let thread = self.thread(*lwp);
            let what = thread.and_then(|thread| thread.waits_for.as_ref()).and_then(|waits| self.object(waits.address));
            let group = groups.entry(what.map_or_else(|| "?".to_owned(), label)).or_default();
            group.0 += 1;
            group.1.extend(thread.and_then(|thread| thread.name.as_deref()));
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, (number, _))| std::cmp::Reverse(*number));
        let mut out = String::new();
        for (what, (number, names)) in groups.iter().take(GROUPS) {
            let more = if names.len() > NAMED { ", .." } else { "" };
            let names: Vec<String> = names.iter().take(NAMED).map(|name| safe(name)).collect();
            let wait = if *number == 1 { "thread waits" } else { "threads wait" };
            out += &format!("  {} {number} {wait} for {what} ({}{more})\n", paint(DIM, "behind:"), names.join(", "));
        }
        if let Some(more @ 1..) = groups.len().checked_sub(GROUPS) {
            out += &format!("  .. and more, for {more} more locks\n");
        }
        if out.is_empty() { out } else { out + "\n" }
    }

    fn no_hang(&self) -> String {
        let verdict = paint(GOOD.bold(), "NO DEADLOCK FOUND");
        let chain = self.snapshot.findings.iter().find(|finding| finding.kind == FindingKind::LongChain);
        let Some(chain) = chain else {
            let unheld = match self.waiting_for_nobody() {
                0 => String::new(),
                1 => "  1 thread waits for a lock with no known holder (`tglass locks` shows it)\n".to_owned(),
                number => {
                    format!("  {number} threads wait for locks with no known holder (`tglass locks` shows them)\n")
                }
            };
            return format!("{verdict}  no thread is known to wait for another one.\n  {}\n{unheld}\n", self.summary());
        };
        let mut out = format!("{verdict}  {}.\n\n", safe(&chain.text));
        for lwp in chain.threads.iter().take(THREADS) {
            out += &self.member(*lwp);
        }
        out += &self.behind(&chain.behind);
        out
    }

    /// Threads that wait for something that somebody may hold, but it is not known who.
    fn waiting_for_nobody(&self) -> usize {
        let held = |object: &&SyncObject| {
            matches!(
                object.kind,
                SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Semaphore | SyncKind::Once | SyncKind::Futex
            )
        };
        let unheld = self.snapshot.objects.iter().filter(held).filter(|object| object.holders.is_empty());
        unheld.map(|object| object.waiters.len()).sum()
    }

    /// What the threads do, when nothing is wrong.
    fn summary(&self) -> String {
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        for thread in &self.snapshot.threads {
            let what = match (thread.state, &thread.waits_for, &thread.syscall) {
                (_, Some(waits), _) if waits.kind == SyncKind::Futex => "asleep on a futex".to_owned(),
                (_, Some(waits), _) => format!("waiting on a {}", waits.kind.word()),
                (ThreadState::Sleep, None, Some(call)) => format!("asleep in {}", call.name),
                (state, ..) => state.word().replace('_', " "),
            };
            *groups.entry(what).or_default() += 1;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        groups.iter().map(|(what, number)| format!("{number} {}", safe(what))).collect::<Vec<_>>().join(", ")
    }

    /// What to do next.
    fn next(&self, hangs: &[&Finding]) -> String {
        let target = match &self.snapshot.target.core {
            Some(core) => safe(&core.path),
            None => self.snapshot.target.pid.to_string(),
        };
        let mut out = String::new();
        let mut line =
            |what: &str, command: String| out += &format!("{} {command}\n", paint(DIM, &format!("{what:<15}")));
        if let Some(finding) = hangs.first() {
            if self.snapshot.target.core.is_none() {
                line("keep evidence", format!("gcore {target}"));
            }
            line("all locks", format!("tglass locks {target}"));
            let mutex = finding
                .objects
                .iter()
                .find(|address| self.object(**address).is_some_and(|object| object.kind == SyncKind::Mutex));
            if let (Some(address), None) = (mutex, &self.snapshot.target.core) {
                line("break it", format!("tglass set {target} {address} 0   (shows first what it would do)"));
            }
        } else {
            line("all stacks", format!("tglass threads {target} --stacks"));
            line("all locks", format!("tglass locks {target}"));
        }
        out
    }
}

fn frames(frames: &[Frame]) -> String {
    // Those of libc say nothing here: how it waits, and how it starts threads.
    let own = frames.iter().filter(|frame| frame.module.as_deref().is_none_or(|module| !Library::of(module).is_libc()));
    own.take(FRAMES).map(|frame| format!("      {}\n", super::stacks::line(frame))).collect()
}
