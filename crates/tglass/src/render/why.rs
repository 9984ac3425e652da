//! The screen of `tglass why`: the verdict first.

use super::sync::{duration, holder, label, thread_name, waits_for};
use super::{BAD, BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use anstyle::Style;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use threadglass::look::library_of;
use threadglass::model::{
    Certainty, Finding, FindingKind, Frame, Snapshot, Stranger, SyncKind, SyncObject, Task, Thread, Verdict,
    VerdictKind, WaitGroup,
};
use threadglass::{Lwp, RemoteAddr};

/// Frames of the program that are shown of each thread, and of each group.
const FRAMES: usize = 8;
const GROUP_FRAMES: usize = 2;
/// Threads of one finding that are shown in full.
const THREADS: usize = 8;
/// Roots that are shown in full.
const ROOTS: usize = 3;

/// Objects that threads queue for, and names of threads, that are listed.
const GROUPS: usize = 4;
const NAMED: usize = 4;
/// Groups of waits that are listed, and of those that wait for work.
const BUSY_GROUPS: usize = 12;
const IDLE_GROUPS: usize = 4;

/// The whole screen, in lines of at most `width` columns. The lock at `settable` could be unlocked by force.
pub fn text(snapshot: &Snapshot, took: Duration, settable: Option<RemoteAddr>, width: Option<usize>) -> String {
    let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
    let objects = snapshot.objects.iter().map(|object| (object.address, object)).collect();
    let screen = Screen { snapshot, threads, objects, settable, width };
    let mut out = super::threads::headline(snapshot, snapshot.threads.len(), took);
    let hangs: Vec<&Finding> = snapshot.findings.iter().filter(|finding| finding.kind.is_hang()).collect();
    out += &screen.verdict(&hangs);
    for finding in &hangs {
        out += &screen.hang(finding);
    }
    out += &screen.stop_beside(&hangs);
    out += &screen.others(&hangs);
    out += &screen.roots();
    out += &super::tasks::groups(snapshot, width);
    out += &screen.groups();
    out += &screen.strangers(&hangs);
    out += &screen.next(&hangs);
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// How a finding is headed.
pub(super) fn heading(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Deadlock => "DEADLOCK",
        FindingKind::SelfDeadlock => "SELF-DEADLOCK",
        FindingKind::RecursiveRead => "DEADLOCK BY READING TWICE",
        FindingKind::OwnerExited => "OWNER GONE",
        FindingKind::OwnerIsForkParent => "LOCKED BEFORE THE FORK",
        FindingKind::OwnerDied => "OWNER DIED",
        FindingKind::CondWithoutSignaller => "NOBODY LEFT TO SIGNAL",
        FindingKind::NobodyLeft => "NOBODY LEFT TO WAKE THEM",
        FindingKind::PoolStarved => "STARVED POOL",
        FindingKind::ProcessCircle => "DEADLOCK OF PROCESSES",
        FindingKind::TaskDeadlock => "DEADLOCK OF TASKS",
        FindingKind::BlockedWorker => "BLOCKED WORKERS",
        FindingKind::GuardAcrossAwait => "GUARD HELD ACROSS AN AWAIT",
        FindingKind::LongChain => "WAITS",
        FindingKind::HolderUnknown => "HOLDER NOT KNOWN",
        FindingKind::HandedOver => "CONTENDED",
    }
}

/// The first word of the screen.
pub(super) fn headword(kind: VerdictKind) -> (&'static str, Style) {
    match kind {
        VerdictKind::Deadlock => ("DEADLOCK", BAD),
        VerdictKind::NobodyLeft => ("NOBODY LEFT TO WAKE THEM", BAD),
        VerdictKind::Stopped => ("STOPPED", FAIR),
        VerdictKind::Unkillable => ("STUCK IN THE KERNEL", FAIR),
        VerdictKind::Behind => ("WAITS BEHIND A THREAD", FAIR),
        VerdictKind::Busy => ("BUSY", GOOD),
        VerdictKind::OtherProcess => ("WAITS FOR ANOTHER PROCESS", FAIR),
        VerdictKind::Idle => ("IDLE", GOOD),
        VerdictKind::Unknown => ("NOT KNOWN", FAIR),
    }
}

struct Screen<'a> {
    snapshot: &'a Snapshot,
    threads: HashMap<Lwp, &'a Thread>,
    objects: HashMap<RemoteAddr, &'a SyncObject>,
    settable: Option<RemoteAddr>,
    width: Option<usize>,
}

impl Screen<'_> {
    fn thread(&self, lwp: Lwp) -> Option<&Thread> {
        self.threads.get(&lwp).copied()
    }

    fn object(&self, address: RemoteAddr) -> Option<&SyncObject> {
        self.objects.get(&address).copied()
    }

    /// Whether an object is the end of a thread, which is no lock.
    fn is_join(&self, address: RemoteAddr) -> bool {
        self.object(address).is_some_and(|object| object.kind == SyncKind::Join)
    }

    /// The answer. A hang says it by its own heading, unless something else comes first.
    fn verdict(&self, hangs: &[&Finding]) -> String {
        let Some(verdict) = &self.snapshot.verdict else { return String::new() };
        let says_itself = matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
        if says_itself && !hangs.is_empty() {
            return String::new();
        }
        let (word, style) = headword(verdict.kind);
        let is_of_task = |finding: &Finding| {
            finding.kind == FindingKind::LongChain
                && !finding.tasks.is_empty()
                && verdict.text.starts_with(&finding.text)
        };
        let word = match verdict.kind {
            VerdictKind::Behind if self.snapshot.findings.iter().any(is_of_task) => "WAITS BEHIND A TASK",
            _ => word,
        };
        let certainty = match verdict.certainty {
            Certainty::Certain => String::new(),
            certainty => format!("  {}", paint(style, certainty.word())),
        };
        format!("{}  {}.{certainty}\n{}\n", paint(style.bold(), word), safe(&verdict.text), way_out(verdict))
    }

    /// Who stopped the threads of a hang: the end of the verdict, which is not on the screen then.
    fn stop_beside(&self, hangs: &[&Finding]) -> String {
        let stop = self.snapshot.threads.iter().find_map(|thread| thread.stop.as_ref());
        let Some((stop, verdict)) = stop.zip(self.snapshot.verdict.as_ref()).filter(|_| !hangs.is_empty()) else {
            return String::new();
        };
        if verdict.kind == VerdictKind::Stopped {
            return String::new();
        }
        let Some(at) = verdict.text.find(&stop.text()) else { return String::new() };
        let begin = verdict.text[..at].rfind("; ").map_or(0, |at| at + "; ".len());
        let (word, style) = headword(VerdictKind::Stopped);
        format!("{}  {}.\n{}\n", paint(style.bold(), word), safe(&verdict.text[begin..]), way_out(verdict))
    }

    /// What is wrong beside hangs, and not said by the first line.
    fn others(&self, hangs: &[&Finding]) -> String {
        let mut out = String::new();
        let first = self.snapshot.verdict.as_ref().filter(|_| hangs.is_empty());
        let is_other = |finding: &&Finding| !finding.kind.is_hang() && !finding.kind.is_root();
        for finding in self.snapshot.findings.iter().filter(is_other) {
            let is_said = first.is_some_and(|verdict| verdict.text.ends_with(&finding.text));
            // Beside a hang that is only likely it matters how sure this is.
            let certainty = match hangs.iter().any(|hang| hang.certainty != finding.certainty) {
                true => format!(".  {}", paint(FAIR, finding.certainty.word())),
                false => String::new(),
            };
            if !is_said {
                out += &format!("{}  {}{certainty}\n\n", paint(FAIR, heading(finding.kind)), safe(&finding.text));
            }
        }
        out
    }

    /// The roots that others wait for, those with most behind them first.
    fn roots(&self) -> String {
        let is_nobodys = |verdict: &Verdict| verdict.kind == VerdictKind::NobodyLeft;
        if self.snapshot.verdict.as_ref().is_some_and(is_nobodys) {
            // They lead to threads that wait for ever, of which the first line tells.
            return String::new();
        }
        let roots: Vec<&Finding> = self.snapshot.findings.iter().filter(|finding| finding.kind.is_root()).collect();
        let said = self.snapshot.verdict.as_ref().map_or("", |verdict| &verdict.text);
        let mut out = String::new();
        for finding in roots.iter().take(ROOTS) {
            if !said.starts_with(&finding.text) {
                out += &format!("{}  {}\n\n", paint(FAIR, heading(finding.kind)), safe(&finding.text));
            }
            // The root first: that is where to look. Then who waits for it.
            let of_chain = finding.kind == FindingKind::LongChain;
            let root = finding.threads.last().filter(|_| of_chain);
            out += &root.map(|root| self.member(*root)).unwrap_or_default();
            if !finding.tasks.is_empty() {
                out += &self.tasks(finding);
                continue;
            }
            let waiting = if of_chain { finding.threads.len().saturating_sub(1) } else { finding.threads.len() };
            let mut nearest = finding.threads[..waiting].iter().rev();
            for lwp in nearest.by_ref().take(THREADS / 2) {
                out += &self.member(*lwp);
            }
            let rest: Vec<Lwp> = nearest.copied().chain(finding.behind.iter().copied()).collect();
            out += &self.behind(&rest);
        }
        if let Some(rest @ [_, ..]) = roots.get(ROOTS..) {
            for finding in rest.iter().take(THREADS) {
                out += &format!("  {}\n", safe(&finding.text));
            }
            out += &more(rest.len(), THREADS, "threads that others wait for");
            out.push('\n');
        }
        out
    }

    /// What all threads wait for or do, those that wait for work last.
    fn groups(&self) -> String {
        let (idle, others): (Vec<&WaitGroup>, Vec<&WaitGroup>) =
            self.snapshot.groups.iter().partition(|group| group.idle);
        let mut out = String::new();
        for (groups, most) in [(others, BUSY_GROUPS), (idle, IDLE_GROUPS)] {
            for group in groups.iter().take(most) {
                out += &self.group(group);
            }
            if let Some(rest @ [_, ..]) = groups.get(most..) {
                let threads: usize = rest.iter().map(|group| group.threads.len()).sum();
                let how = if rest.iter().all(|group| group.idle) { "wait for work" } else { "do something else" };
                out += &format!("  .. and {threads} more, in {} groups, {how}\n", rest.len());
            }
        }
        if out.is_empty() { out } else { format!("{}\n{out}\n", paint(DIM, "what the threads do:")) }
    }

    fn group(&self, group: &WaitGroup) -> String {
        let age = match (group.oldest_ms, group.youngest_ms) {
            (Some(oldest), Some(youngest)) if duration(oldest) != duration(youngest) => {
                format!(", for at least {} to {}", duration(youngest), duration(oldest))
            }
            (Some(oldest), _) => format!(", for at least {}", duration(oldest)),
            _ => String::new(),
        };
        let mut names: Vec<String> =
            group.threads.iter().filter_map(|lwp| Some(safe(self.thread(*lwp)?.name.as_deref()?))).collect();
        names.sort_unstable();
        names.dedup();
        let others = if names.len() > NAMED { ", .." } else { "" };
        names.truncate(NAMED);
        let names = if names.is_empty() { String::new() } else { format!(" ({}{others})", names.join(", ")) };
        let mut out = format!("  {:>4}  {}{age}{}\n", group.threads.len(), safe(&group.what), paint(DIM, &names));
        for frame in group.frames.iter().take(GROUP_FRAMES) {
            out += &frame_line(10, frame, self.width);
        }
        out
    }

    fn hang(&self, finding: &Finding) -> String {
        let style = if finding.certainty == Certainty::Certain { BAD } else { FAIR };
        let number = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let about = match finding.kind {
            // There are two of them at least.
            FindingKind::ProcessCircle => {
                let pids: BTreeSet<_> = finding.members.iter().map(|member| member.pid).collect();
                format!("{} processes", pids.len())
            }
            FindingKind::TaskDeadlock if !finding.tasks.is_empty() => number(finding.tasks.len(), "task"),
            FindingKind::TaskDeadlock if finding.threads.is_empty() => number(finding.objects.len(), "task"),
            FindingKind::GuardAcrossAwait => number(finding.objects.len(), "lock"),
            _ => match finding.objects.iter().filter(|address| !self.is_join(**address)).count() {
                0 => number(finding.threads.len(), "thread"),
                locks => format!("{}, {}", number(finding.threads.len(), "thread"), number(locks, "lock")),
            },
        };
        let behind = match finding.behind.len() {
            0 => String::new(),
            1 => "; 1 more thread queues behind".to_owned(),
            number => format!("; {number} more threads queue behind"),
        };
        let mut out = format!(
            "{}  {about}{behind}.  {}\n",
            paint(style.bold(), heading(finding.kind)),
            paint(style, finding.certainty.word())
        );
        if finding.kind != FindingKind::Deadlock {
            out += &format!("  {}\n", safe(&finding.text));
        }
        out.push('\n');
        if !finding.tasks.is_empty() {
            return out + &self.tasks(finding);
        }
        for lwp in finding.threads.iter().take(THREADS) {
            out += &self.member(*lwp);
        }
        if let Some(more @ 1..) = finding.threads.len().checked_sub(THREADS) {
            out += &format!("  .. and {more} more\n");
        }
        out += &self.behind(&finding.behind);
        out
    }

    /// The tasks that a finding is about, and where they are.
    fn tasks(&self, finding: &Finding) -> String {
        // Numbers are not unique: there may be several runtimes, and the futures of block_on have none.
        let wants = |task: &&Task| {
            let waits = task.wait.iter().flat_map(|wait| &wait.objects).map(|object| object.address);
            waits.chain(task.holds.iter().map(|held| held.address)).any(|address| finding.objects.contains(&address))
        };
        let of = |id: &u64| {
            let all = || self.snapshot.tasks.iter().filter(|task| task.id == *id);
            all().find(wants).or_else(|| all().next())
        };
        let tasks = finding.tasks.iter().filter_map(of).take(THREADS);
        let mut out: String = tasks.map(|task| super::tasks::member(task, self.width)).collect();
        out += &more(finding.tasks.len(), THREADS, "tasks");
        out
    }

    /// One thread: what it wants, what it holds, and where it is.
    fn member(&self, lwp: Lwp) -> String {
        let Some(thread) = self.thread(lwp) else {
            let stranger = self.snapshot.strangers.iter().find(|stranger| stranger.thread.lwp == Some(lwp));
            return stranger.map_or_else(|| format!("  thread {lwp}\n\n"), |stranger| self.stranger(stranger));
        };
        let mut out = format!("  {}\n", paint(BOLD, &thread_name(thread)));
        if let Some(waits) = &thread.waits_for {
            let object = self.object(waits.address);
            out += &format!("    waits {}\n", waits_for(waits, object));
            if let Some(object) = object.filter(|object| object.kind != SyncKind::Join) {
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
        out += &frames(&thread.frames, self.width);
        out.push('\n');
        out
    }

    /// A thread of another process, and where it is.
    fn stranger(&self, stranger: &Stranger) -> String {
        let process = safe(stranger.process.as_deref().unwrap_or("process"));
        let name = format!("{}, of {process} ({})", thread_name(&stranger.thread), stranger.pid);
        format!("  {}\n{}\n", paint(BOLD, &name), frames(&stranger.thread.frames, self.width))
    }

    /// The threads of other processes that waits lead to, but for those that were shown.
    fn strangers(&self, hangs: &[&Finding]) -> String {
        let is_shown = |stranger: &&Stranger| {
            hangs.iter().any(|finding| stranger.thread.lwp.is_some_and(|lwp| finding.threads.contains(&lwp)))
        };
        let others = self.snapshot.strangers.iter().filter(|stranger| !is_shown(stranger));
        let out: String = others.map(|stranger| self.stranger(stranger)).collect();
        if out.is_empty() { out } else { format!("{}\n{out}", paint(DIM, "in other processes:")) }
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
            // A core has no names of threads.
            let names = if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) };
            out += &format!("  {} {number} {wait} for {what}{names}\n", paint(DIM, "behind:"));
        }
        if let Some(more @ 1..) = groups.len().checked_sub(GROUPS) {
            out += &format!("  .. and more, for {more} more locks\n");
        }
        if out.is_empty() { out } else { out + "\n" }
    }

    /// What to do next.
    fn next(&self, hangs: &[&Finding]) -> String {
        let about = &self.snapshot.target;
        let target = match (&about.snapshot, &about.core) {
            (Some(file), _) => safe(&file.path),
            (None, Some(core)) => safe(&core.path),
            (None, None) => about.pid.to_string(),
        };
        let mut out = String::new();
        let mut line =
            |what: &str, command: String| out += &format!("{} {command}\n", paint(DIM, &format!("{what:<15}")));
        if !hangs.is_empty() {
            if about.snapshot.is_none() && about.core.is_none() {
                line("keep evidence", format!("tglass snap {target} -o {}.tgsnap", about.pid));
            }
            line("all locks", format!("tglass locks {target}"));
            if let Some(address) = self.settable {
                line("break it", format!("tglass set {target} {address} 0   (shows first what it would do)"));
            }
        } else {
            line("all stacks", format!("tglass threads {target} --stacks"));
            line("all locks", format!("tglass locks {target}"));
        }
        for runtime in &self.snapshot.runtimes {
            let Some(tool) = &runtime.tool else { continue };
            let effect = runtime.effect.as_ref().map_or_else(String::new, |effect| format!("   ({})", safe(effect)));
            line(&safe(&runtime.name), format!("{}{effect}", safe(tool)));
        }
        out
    }
}

fn way_out(verdict: &Verdict) -> String {
    let line = |way: &String| format!("  {} {}\n", paint(DIM, "way out:"), safe(way));
    verdict.way_out.as_ref().map(line).unwrap_or_default()
}

/// `.. and 3 more threads`, of those that are beyond the limit.
fn more(number: usize, limit: usize, what: &str) -> String {
    match number.checked_sub(limit) {
        Some(more @ 1..) => format!("  .. and {more} more {what}\n"),
        _ => String::new(),
    }
}

/// A frame, set in by `indent` columns.
fn frame_line(indent: usize, frame: &Frame, width: Option<usize>) -> String {
    fit::cut_to(format!("{:indent$}{}", "", super::stacks::line(frame)), width) + "\n"
}

/// The program's own frames; those of libraries in between as one line.
fn frames(frames: &[Frame], width: Option<usize>) -> String {
    let (mut out, mut own) = (String::new(), 0);
    for run in frames.chunk_by(|a, b| library_of(a).is_some() == library_of(b).is_some()) {
        let Some(library) = run.first().and_then(library_of) else {
            for frame in run.iter().take(FRAMES - own) {
                out += &frame_line(6, frame, width);
            }
            own += run.len().min(FRAMES - own);
            continue;
        };
        let names: BTreeSet<&str> = run.iter().filter_map(library_of).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let what = match run {
            [_] => format!(".. 1 frame of {library}"),
            _ => format!(".. {} frames of {}", run.len(), names.join(", ")),
        };
        if own < FRAMES {
            out += &format!("      {}\n", paint(DIM, &what));
        }
    }
    let all = frames.iter().filter(|frame| library_of(frame).is_none()).count();
    if all > own {
        out += &format!("      {}\n", paint(DIM, &format!(".. {} more frames", all - own)));
    }
    out
}
