//! The screens of `tglass threads` for programs whose runtime runs tasks of its own on threads.

use super::sync::duration;
use super::{BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;
use threadglass::look::{is_of_library, name_of_task};
use threadglass::model::{
    ChannelUse, Evidence, Frame, Side, Snapshot, StackEnd, SyncKind, Task, TaskGroup, TaskWait, ThreadState, ThreadType,
};

/// How many tasks of one group are listed.
const LISTED: usize = 12;
/// Groups of tasks that `why` lists, and frames of each.
const GROUPS: usize = 12;
const GROUP_FRAMES: usize = 2;
/// Frames of a task that a finding is about.
const MEMBER_FRAMES: usize = 8;
/// Tasks of one group whose waits are compared.
const COMPARED: usize = 1024;
/// Objects of one wait that are listed.
const OBJECTS: usize = 3;

/// The whole screen, in lines of at most `width` columns. `all` is the number of tasks before filtering.
pub fn text(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    if !snapshot.tasks.is_empty() {
        list(&mut out, &snapshot.tasks, width);
    }
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// The same with stacks: equal ones once, with the tasks that have them.
pub fn stacks(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    for group in &snapshot.task_groups {
        out += &heading(group, snapshot);
        out += &frames(group, width);
        out.push('\n');
    }
    // The last group has its own empty line.
    out.pop();
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// Which process, how many tasks in which states on how many threads, and what the look cost.
fn headline(snapshot: &Snapshot, all: usize, took: Duration) -> String {
    let count = match snapshot.tasks.len() {
        shown if shown == all => tasks(all),
        shown => format!("{shown} of {}", tasks(all)),
    };
    let states: Vec<String> = ThreadState::ALL
        .into_iter()
        .filter_map(|state| {
            let number = snapshot.tasks.iter().filter(|task| task.state == state).count();
            (number > 0).then(|| format!("{number} {}", state.word()))
        })
        .collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    let runtimes = snapshot.task_runtimes.iter().map(|runtime| {
        let version = runtime.version.as_deref().map(|version| format!(" {}", safe(version))).unwrap_or_default();
        let most = runtime.concurrency.map(|number| format!(", {number} at a time")).unwrap_or_default();
        format!("{}{version}{most}", runtime.name)
    });
    let threads = match snapshot.threads.len() {
        1 => "1 thread".to_owned(),
        number => format!("{number} threads"),
    };
    let runtimes = runtimes.collect::<Vec<_>>().join("; ");
    let took = format!("{:.1} ms", took.as_secs_f64() * 1e3);
    format!(
        "{}  {count}{states}\n{}\n{} on {threads}\n\n",
        super::target::name(&snapshot.target),
        super::target::how(&snapshot.target, (snapshot.pause_us, snapshot.longest_pause_us), Some(took)),
        runtimes,
    )
}

fn tasks(number: usize) -> String {
    if number == 1 { "1 task".to_owned() } else { format!("{number} tasks") }
}

const HEADINGS: [&str; 7] = ["TASK", "STATE", "LWP", "SINCE", "WAITS FOR", "START", "MADE BY"];
/// Columns of numbers.
const RIGHT: [bool; 7] = [true, false, true, true, false, false, false];

/// The cells of all lines, one behind the other: a table of cells would take longer than the look, as there may be 100,000
/// lines.
#[derive(Default)]
struct Cells {
    text: String,
    /// Where each cell ends in its line, and whether each byte there takes one column.
    ends: Vec<([u32; HEADINGS.len()], bool)>,
    /// Columns of the widest cells.
    widths: [usize; HEADINGS.len()],
}

impl Cells {
    /// Adds a line, whose cells `write` writes in their order.
    fn line(&mut self, mut write: impl FnMut(usize, &mut String)) {
        let start = self.text.len();
        let mut ends = [0; HEADINGS.len()];
        for (number, end) in ends.iter_mut().enumerate() {
            write(number, &mut self.text);
            *end = (self.text.len() - start) as u32;
        }
        // Nearly all lines are such, and to look at each cell would take as long as to write it.
        let line = &self.text[start..];
        let is_plain = fit::columns(line) == line.len();
        let mut from = 0;
        for (width, end) in self.widths.iter_mut().zip(ends) {
            *width = (*width).max(cell_columns(&line[from..end as usize], is_plain));
            from = end as usize;
        }
        self.ends.push((ends, is_plain));
    }

    /// Adds the lines in columns to `out`, each in the style that `style` gives it.
    fn add_to(&self, out: &mut String, style: impl Fn(usize) -> Option<anstyle::Style>, width: Option<usize>) {
        let wide: usize = self.widths.iter().map(|width| width + 2).sum();
        out.reserve(self.ends.len() * (wide + 1));
        let mut rest = self.text.as_str();
        for (number, (ends, is_plain)) in self.ends.iter().enumerate() {
            let (cells, after) = rest.split_at(ends[HEADINGS.len() - 1] as usize);
            rest = after;
            let start = out.len();
            let mut from = 0;
            for ((end, column), right) in ends.iter().zip(self.widths).zip(RIGHT) {
                let cell = &cells[from..*end as usize];
                from = *end as usize;
                let pad = column.saturating_sub(cell_columns(cell, *is_plain));
                blanks(out, if right { pad + 2 } else { 2 });
                *out += cell;
                blanks(out, if right { 0 } else { pad });
            }
            out.truncate(start + out[start..].trim_end_matches(' ').len());
            let style = style(number);
            if style.is_some() || width.is_some() {
                let text = fit::cut_to(out.split_off(start), width);
                *out += &style.map_or_else(|| text.clone(), |style| paint(style, &text));
            }
            out.push('\n');
        }
    }
}

/// Columns of a cell, of a line of which each byte takes one or not.
fn cell_columns(cell: &str, is_plain: bool) -> usize {
    if is_plain { cell.len() } else { fit::columns(cell) }
}

fn blanks(out: &mut String, number: usize) {
    const BLANKS: &str = "                                ";
    let mut left = number;
    while left > 0 {
        let some = left.min(BLANKS.len());
        *out += &BLANKS[..some];
        left -= some;
    }
}

fn list(out: &mut String, tasks: &[Task], width: Option<usize>) {
    let mut names = Names::default();
    let mut cells = Cells { text: String::with_capacity(tasks.len() * 96), ..Cells::default() };
    cells.ends.reserve(tasks.len() + 1);
    cells.line(|number, out| *out += HEADINGS[number]);
    tasks.iter().for_each(|task| row(task, &mut names, &mut cells));
    let style = |line: usize| match line.checked_sub(1).map(|task| tasks[task].state) {
        None => Some(DIM),
        Some(ThreadState::Active) => Some(GOOD),
        Some(ThreadState::Run) => Some(FAIR),
        Some(_) => None,
    };
    cells.add_to(out, style, width);
}

/// Names of functions and reasons as they are shown, by where they are: most tasks share theirs with others.
#[derive(Default)]
struct Names {
    texts: HashMap<usize, String>,
    makers: HashMap<usize, String>,
}

fn row(task: &Task, names: &mut Names, cells: &mut Cells) {
    cells.line(|column, out| match column {
        0 if is_root(task) => *out += ROOT,
        0 => drop(write!(out, "{}", task.id)),
        1 => *out += task.state.word(),
        2 => match task.carried_by.or(task.bound_to.filter(|_| is_root(task))) {
            Some(carrier) => drop(write!(out, "{carrier}")),
            None => out.push('-'),
        },
        3 => match task.wait.as_ref().and_then(|wait| wait.since_ms) {
            Some(since) => *out += &duration(since),
            None => out.push('-'),
        },
        4 => match &task.wait {
            Some(wait) => reason(out, wait, names, is_of_futures(task)),
            None if is_in_call(task) => *out += task.status,
            None => out.push('-'),
        },
        5 => match &task.start_function {
            Some(name) => *out += safe_once(&mut names.texts, name),
            None => out.push('-'),
        },
        _ => match &task.created_by {
            Some(frame) => {
                *out += names.makers.entry(std::ptr::from_ref(&**frame).addr()).or_insert_with(|| place(frame))
            }
            None => out.push('-'),
        },
    });
}

/// What one task waits for, or the call that its thread has taken it into.
pub(super) fn waits(task: &Task) -> Option<String> {
    let mut out = String::new();
    match &task.wait {
        Some(wait) => reason(&mut out, wait, &mut Names::default(), is_of_futures(task)),
        None if is_in_call(task) => out += task.status,
        None => return None,
    }
    Some(out)
}

/// `text` as it may be shown, made once of each.
fn safe_once<'n>(texts: &'n mut HashMap<usize, String>, text: &str) -> &'n str {
    texts.entry(text.as_ptr().addr()).or_insert_with(|| safe(text))
}

/// Whether it is what a thread waits for in `block_on`: its runtime has no number for that.
fn is_root(task: &Task) -> bool {
    task.id == 0 && task.bound_to.is_some()
}

/// Whether its runtime tells which tasks have the other end of a channel, and does not infer it from code.
fn is_of_futures(task: &Task) -> bool {
    task.runtime == "tokio"
}

/// What a future of `block_on` is called.
const ROOT: &str = "block_on";

/// Whether its thread has taken it into a system call.
fn is_in_call(task: &Task) -> bool {
    task.carried_by.is_some() && task.state == ThreadState::Sleep
}

/// What a task waits for, in the words of its runtime, and the objects of the wait: `chan receive 0xc000080120`.
fn reason(out: &mut String, wait: &TaskWait, names: &mut Names, of_futures: bool) {
    *out += safe_once(&mut names.texts, &wait.reason);
    if let Some(number) = wait.descriptor {
        let _ = write!(out, " fd {number}");
    }
    if let Some(end) = &wait.outside {
        *out += ": ";
        *out += &safe(end.what.as_deref().unwrap_or(end.kind.word()));
        for (number, partner) in end.partners.iter().take(OBJECTS).enumerate() {
            let name = safe(partner.name.as_deref().unwrap_or("process"));
            let _ = write!(out, "{} {name} ({})", if number == 0 { " to" } else { "," }, partner.pid);
        }
    }
    for (number, object) in wait.objects.iter().take(OBJECTS).enumerate() {
        // A semaphore is what Go calls nearly all that is waited for.
        let kind = if wait.reason.starts_with("sema") { object.kind.word() } else { "" };
        let (between, blank) = (if number == 0 { "" } else { "," }, if kind.is_empty() { "" } else { " " });
        let _ = write!(out, "{between}{blank}{kind} {}", object.address);
        // Of a lock for one, only one of them can be it.
        let more = if of_futures && object.kind == SyncKind::Mutex { " or" } else { "," };
        for (number, holder) in object.held_by.iter().take(OBJECTS).enumerate() {
            let _ = write!(out, "{} {}", if number == 0 { ", held by" } else { more }, number_of(holder));
        }
        // A variable with an end of a channel may have given it away.
        let is_known = of_futures && object.held_by.is_empty();
        for (number, other) in object.woken_by.iter().filter(|_| is_known).take(OBJECTS).enumerate() {
            let end = if object.channel_use == Some(ChannelUse::Send) { "maybe received by" } else { "maybe sent by" };
            let end = format!(", {end}");
            let _ = write!(out, "{} {}", if number == 0 { &end } else { "," }, number_of(other));
        }
    }
    if wait.objects.len() > OBJECTS {
        *out += " ..";
    }
}

/// `main.serve (server.go:12)`
pub(super) fn place(frame: &Frame) -> String {
    let function = frame.function.as_deref().map_or_else(|| frame.pc.to_string(), safe);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({}:{line})", safe(file.rsplit('/').next().unwrap_or(file))),
        _ => function,
    }
}

/// `196 tasks: 18 19 ..  sleep: chan receive, the oldest for 5m02s`
fn heading(group: &TaskGroup, snapshot: &Snapshot) -> String {
    let ids: Vec<String> = group.tasks.iter().take(LISTED).map(number_of).collect();
    let more = if group.tasks.len() > LISTED { " .." } else { "" };
    let state = format!("  {}{}", group.state.word(), what(group, snapshot));
    format!("{}: {}{more}{}\n", paint(BOLD, &tasks(group.tasks.len())), ids.join(" "), paint(DIM, &state))
}

/// The number of a task; the future of `block_on` has none.
pub(super) fn number_of(id: &u64) -> String {
    if *id == 0 { ROOT.to_owned() } else { id.to_string() }
}

/// `: chan receive 0xc000080120, the oldest for 5m02s`
fn what(group: &TaskGroup, snapshot: &Snapshot) -> String {
    let plain = || group.reason.as_deref().map(safe);
    let reason = common_wait(group, snapshot).or_else(plain).map(|reason| format!(": {reason}")).unwrap_or_default();
    let oldest = match (group.oldest_ms, group.tasks.len()) {
        (Some(ms), 1) => format!(", for {}", duration(ms)),
        (Some(ms), _) => format!(", the oldest for {}", duration(ms)),
        (None, _) => String::new(),
    };
    format!("{reason}{oldest}")
}

/// What all tasks of a group wait for, if that is the same.
fn common_wait(group: &TaskGroup, snapshot: &Snapshot) -> Option<String> {
    if group.tasks.len() > COMPARED {
        return None;
    }
    let of = |id: &u64| {
        let index = snapshot.tasks.binary_search_by_key(id, |task| task.id).ok()?;
        Some(&snapshot.tasks[index])
    };
    let (first, rest) = group.tasks.split_first()?;
    let task = of(first)?;
    let wait = task.wait.as_ref()?;
    let at = |wait: &TaskWait| -> Vec<_> { wait.objects.iter().map(|object| (object.address, object.kind)).collect() };
    let is_same = |other: &TaskWait| other.descriptor == wait.descriptor && at(other) == at(wait);
    rest.iter().all(|id| of(id).and_then(|task| task.wait.as_ref()).is_some_and(is_same)).then(|| {
        let mut out = String::new();
        reason(&mut out, wait, &mut Names::default(), is_of_futures(task));
        out
    })
}

/// What the tasks do, by groups: the part of `why` that is about them.
pub fn groups(snapshot: &Snapshot, width: Option<usize>) -> String {
    let of_program = || snapshot.task_groups.iter().filter(|group| group.kind == ThreadType::User);
    if of_program().next().is_none() {
        return String::new();
    }
    let mut out = format!("{}\n", paint(DIM, "what the tasks do:"));
    for group in of_program().take(GROUPS) {
        out += &format!("  {:>4}  {}{}\n", group.tasks.len(), group.state.word(), what(group, snapshot));
        for frame in telling(&group.frames) {
            out += &(fit::cut_to(format!("          {}", super::stacks::line(frame)), width) + "\n");
        }
    }
    if let Some(more @ 1..) = of_program().count().checked_sub(GROUPS) {
        out += &format!("  .. and {more} more groups\n");
    }
    out + "\n"
}

/// The frames of a group that are shown: the innermost one that tells something, and the program's own that led there.
fn telling(frames: &[Frame]) -> Vec<&Frame> {
    let mut shown: Vec<&Frame> = frames.iter().filter(|frame| is_of_program(frame)).collect();
    let is_own = |frame: &&Frame| frame.function.as_deref().is_some_and(|name| !is_of_library(name));
    if let Some(own) = shown.iter().position(is_own).filter(|own| *own >= GROUP_FRAMES) {
        shown.swap(GROUP_FRAMES - 1, own);
    }
    shown.truncate(GROUP_FRAMES);
    shown
}

/// One task of a finding: what it does, who runs it, what it holds, and the frames of the program.
pub fn member(task: &Task, width: Option<usize>) -> String {
    let mut out = format!("  {}\n", paint(BOLD, &safe(&name_of_task(task))));
    let carried = task.carried_by.map(|lwp| format!(" on thread {lwp}")).unwrap_or_default();
    match &task.wait {
        Some(wait) => {
            let since = wait.since_ms.map(|ms| format!(", for at least {}", duration(ms))).unwrap_or_default();
            let mut what = String::new();
            reason(&mut what, wait, &mut Names::default(), is_of_futures(task));
            out += &format!("    waits: {what}{since}\n");
        }
        None => out += &format!("    {}{carried}\n", task.status),
    }
    for held in &task.holds {
        let side = match held.side {
            Some(Side::Read) => " to read",
            Some(Side::Write) => " to write",
            None => "",
        };
        let how = if held.evidence == Evidence::Inferred { " (inferred)" } else { "" };
        out += &format!("    holds the {} {}{side}{how}\n", held.kind.word(), held.address);
    }
    for frame in task.frames.iter().filter(|frame| is_of_program(frame)).take(MEMBER_FRAMES) {
        out += &(fit::cut_to(format!("      {}", super::stacks::line(frame)), width) + "\n");
    }
    out.push('\n');
    out
}

/// Whether a frame is one of the program's own.
pub(super) fn is_of_program(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(|name| !is_of_runtime(name))
}

/// Whether a function is of the runtime, so that its caller tells more.
fn is_of_runtime(name: &str) -> bool {
    const RUNTIMES: [&str; 7] =
        ["runtime.", "sync.", "internal/", "time.Sleep", "syscall.", "tokio::", "futures_util::"];
    RUNTIMES.iter().any(|prefix| name.starts_with(prefix))
}

fn frames(task: &TaskGroup, width: Option<usize>) -> String {
    let digits = task.frames.len().saturating_sub(1).to_string().len();
    let mut out = String::new();
    for (number, frame) in task.frames.iter().enumerate() {
        out += &fit::cut_to(format!("  #{number:<digits$}  {}", super::stacks::line(frame)), width);
        out.push('\n');
    }
    if let Some(maker) = task.created_by.as_deref() {
        out += &fit::cut_to(format!("  {} {}", paint(DIM, "made by"), super::stacks::line(maker)), width);
        out.push('\n');
    }
    match &task.frames_end {
        Some(StackEnd::Unknown { why }) => out += &format!("  {} {}\n", paint(FAIR, "not seen:"), safe(why)),
        Some(StackEnd::Limit) => out += &format!("  {} deeper than the limit\n", paint(FAIR, "not seen further:")),
        Some(StackEnd::Start) | None => {}
    }
    out
}
