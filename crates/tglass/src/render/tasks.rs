//! The screens of `tglass threads` for programs whose runtime runs tasks of its own on threads.

use super::sync::duration;
use super::{BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;
use threadglass::model::{Frame, Snapshot, StackEnd, Task, TaskGroup, TaskWait, ThreadState, ThreadType};

/// How many tasks of one group are listed.
const LISTED: usize = 12;
/// Groups of tasks that `why` lists, and frames of each.
const GROUPS: usize = 12;
const GROUP_FRAMES: usize = 2;
/// Objects of one wait that are listed.
const OBJECTS: usize = 3;

/// The whole screen, in lines of at most `width` columns. `all` is the number of tasks before filtering.
pub fn text(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    if !snapshot.tasks.is_empty() {
        out += &list(&snapshot.tasks, width);
    }
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// The same with stacks: equal ones once, with the tasks that have them.
pub fn stacks(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    for group in &snapshot.task_groups {
        out += &heading(group);
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

/// One line a task. A table of cells would take longer than the look: there may be 100,000 lines.
fn list(tasks: &[Task], width: Option<usize>) -> String {
    let mut names = Names::default();
    let mut widths = HEADINGS.map(str::len);
    let mut cells: [String; 7] = Default::default();
    for task in tasks {
        row(task, &mut names, &mut cells);
        widths.iter_mut().zip(&cells).for_each(|(width, cell)| *width = (*width).max(fit::columns(cell)));
    }
    let mut out = String::with_capacity((tasks.len() + 1) * (widths.iter().sum::<usize>() + 2 * widths.len()));
    let headings = HEADINGS.map(str::to_owned);
    line(&mut out, &headings, &widths, Some(DIM), width);
    for task in tasks {
        row(task, &mut names, &mut cells);
        let style = match task.state {
            ThreadState::Active => Some(GOOD),
            ThreadState::Run => Some(FAIR),
            _ => None,
        };
        line(&mut out, &cells, &widths, style, width);
    }
    out
}

fn line(
    out: &mut String,
    cells: &[String; 7],
    widths: &[usize; 7],
    style: Option<anstyle::Style>,
    width: Option<usize>,
) {
    let start = out.len();
    for ((cell, column), right) in cells.iter().zip(widths).zip(RIGHT) {
        let pad = column.saturating_sub(fit::columns(cell));
        *out += "  ";
        out.extend(std::iter::repeat_n(' ', if right { pad } else { 0 }));
        *out += cell;
        out.extend(std::iter::repeat_n(' ', if right { 0 } else { pad }));
    }
    out.truncate(start + out[start..].trim_end().len());
    if style.is_some() || width.is_some() {
        let text = fit::cut_to(out.split_off(start), width);
        *out += &style.map_or_else(|| text.clone(), |style| paint(style, &text));
    }
    out.push('\n');
}

/// Names of functions as they are shown, by where they are: most tasks share theirs with others.
#[derive(Default)]
struct Names {
    starts: HashMap<usize, String>,
    makers: HashMap<usize, String>,
}

fn row(task: &Task, names: &mut Names, cells: &mut [String; 7]) {
    cells.iter_mut().for_each(String::clear);
    let [id, state, lwp, since, waits, start, maker] = cells;
    let _ = write!(id, "{}", task.id);
    *state += task.state.word();
    match task.carried_by {
        Some(carrier) => drop(write!(lwp, "{carrier}")),
        None => lwp.push('-'),
    }
    *since += &task.wait.as_ref().and_then(|wait| wait.since_ms).map_or_else(|| "-".to_owned(), duration);
    match &task.wait {
        Some(wait) => reason(waits, wait),
        None if is_in_call(task) => *waits += task.status,
        None => waits.push('-'),
    }
    match &task.start_function {
        Some(name) => *start += names.starts.entry(name.as_ptr().addr()).or_insert_with(|| safe(name)),
        None => start.push('-'),
    }
    match &task.created_by {
        Some(frame) => {
            *maker += names.makers.entry(std::ptr::from_ref(&**frame).addr()).or_insert_with(|| place(frame))
        }
        None => maker.push('-'),
    }
}

/// Whether its thread has taken it into a system call.
fn is_in_call(task: &Task) -> bool {
    task.carried_by.is_some() && task.state == ThreadState::Sleep
}

/// What a task waits for, in the words of its runtime, and the objects of the wait: `chan receive 0xc000080120`.
fn reason(out: &mut String, wait: &TaskWait) {
    *out += &safe(&wait.reason);
    if let Some(number) = wait.descriptor {
        let _ = write!(out, " fd {number}");
    }
    for (number, object) in wait.objects.iter().take(OBJECTS).enumerate() {
        let _ = write!(out, "{} {}", if number == 0 { "" } else { "," }, object.address);
        for (number, holder) in object.held_by.iter().take(OBJECTS).enumerate() {
            let _ = write!(out, "{} {holder}", if number == 0 { ", held by" } else { "," });
        }
    }
    if wait.objects.len() > OBJECTS {
        *out += " ..";
    }
}

/// `main.serve (server.go:12)`
fn place(frame: &Frame) -> String {
    let function = frame.function.as_deref().map_or_else(|| frame.pc.to_string(), safe);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({}:{line})", safe(file.rsplit('/').next().unwrap_or(file))),
        _ => function,
    }
}

/// `196 tasks: 18 19 ..  sleep: chan receive, the oldest for 5m02s`
fn heading(group: &TaskGroup) -> String {
    let ids: Vec<String> = group.tasks.iter().take(LISTED).map(u64::to_string).collect();
    let more = if group.tasks.len() > LISTED { " .." } else { "" };
    let state = format!("  {}{}", group.state.word(), what(group));
    format!("{}: {}{more}{}\n", paint(BOLD, &tasks(group.tasks.len())), ids.join(" "), paint(DIM, &state))
}

/// `: chan receive, the oldest for 5m02s`
fn what(group: &TaskGroup) -> String {
    let reason = group.reason.as_deref().map(|reason| format!(": {}", safe(reason))).unwrap_or_default();
    let oldest = match (group.oldest_ms, group.tasks.len()) {
        (Some(ms), 1) => format!(", for {}", duration(ms)),
        (Some(ms), _) => format!(", the oldest for {}", duration(ms)),
        (None, _) => String::new(),
    };
    format!("{reason}{oldest}")
}

/// What the tasks do, by groups: the part of `why` that is about them.
pub fn groups(snapshot: &Snapshot, width: Option<usize>) -> String {
    let of_program = || snapshot.task_groups.iter().filter(|group| group.kind == ThreadType::User);
    if of_program().next().is_none() {
        return String::new();
    }
    let mut out = format!("{}\n", paint(DIM, "what the tasks do:"));
    for group in of_program().take(GROUPS) {
        out += &format!("  {:>4}  {}{}\n", group.tasks.len(), group.state.word(), what(group));
        let is_own = |frame: &&Frame| frame.function.as_deref().is_some_and(|name| !is_of_runtime(name));
        for frame in group.frames.iter().filter(is_own).take(GROUP_FRAMES) {
            out += &(fit::cut_to(format!("          {}", super::stacks::line(frame)), width) + "\n");
        }
    }
    if let Some(more @ 1..) = of_program().count().checked_sub(GROUPS) {
        out += &format!("  .. and {more} more groups\n");
    }
    out + "\n"
}

/// Whether a function is of the runtime, so that its caller tells more.
fn is_of_runtime(name: &str) -> bool {
    ["runtime.", "sync.", "internal/", "time.Sleep", "syscall."].iter().any(|prefix| name.starts_with(prefix))
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
