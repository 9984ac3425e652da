//! The screens of `tglass threads` for programs whose runtime runs tasks of its own on threads.

use super::table::{Cell, Table};
use super::{BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use std::collections::HashMap;
use std::time::Duration;
use threadglass::model::{Frame, Snapshot, StackEnd, Task, TaskWait, TaskWaitsFor, ThreadState};

/// How many tasks of one group are listed.
const LISTED: usize = 12;
/// Objects of one wait that are listed.
const OBJECTS: usize = 3;

/// The whole screen, in lines of at most `width` columns. `all` is the number of tasks before filtering.
pub fn text(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    if !snapshot.tasks.is_empty() {
        let mut table = Table::new(&[">TASK", "STATE", ">LWP", ">SINCE", "WAITS FOR", "START", "MADE BY"]);
        for task in &snapshot.tasks {
            table.row(row(task));
        }
        out += &table.render_within(width);
    }
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// The same with stacks: equal ones once, with the tasks that have them.
pub fn stacks(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    for group in groups(&snapshot.tasks) {
        out += &heading(&group);
        out += &frames(group[0], width);
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

fn row(task: &Task) -> Vec<Cell> {
    let or_dash = |text: Option<String>| text.map_or_else(|| Cell::styled("-", DIM), Cell::from);
    let style = match task.state {
        ThreadState::Active => GOOD,
        ThreadState::Run => FAIR,
        _ => anstyle::Style::new(),
    };
    vec![
        task.id.to_string().into(),
        Cell::styled(task.state.word(), style),
        or_dash(task.carried_by.map(|lwp| lwp.to_string())),
        or_dash(task.wait.as_ref().and_then(|wait| wait.since_ms).map(age)),
        or_dash(waits(task)),
        or_dash(task.start_function.as_deref().map(safe)),
        or_dash(task.created_by.as_deref().map(|frame| place(frame))),
    ]
}

/// What a task waits for, in the words of its runtime, and the objects of the wait.
fn waits(task: &Task) -> Option<String> {
    match &task.wait {
        Some(wait) => Some(reason(wait)),
        None if task.carried_by.is_some() && task.state == ThreadState::Sleep => Some(task.status.to_owned()),
        None => None,
    }
}

/// `chan receive 0xc000080120`
fn reason(wait: &TaskWait) -> String {
    let mut text = safe(&wait.reason);
    if let Some(number) = wait.descriptor {
        text += &format!(" fd {number}");
    }
    let objects: Vec<String> = wait.objects.iter().take(OBJECTS).map(object).collect();
    if !objects.is_empty() {
        let more = if wait.objects.len() > OBJECTS { " .." } else { "" };
        text += &format!(" {}{more}", objects.join(", "));
    }
    text
}

fn object(waits: &TaskWaitsFor) -> String {
    let held_by: Vec<String> = waits.held_by.iter().take(OBJECTS).map(u64::to_string).collect();
    let held_by = if held_by.is_empty() { String::new() } else { format!(", held by {}", held_by.join(", ")) };
    format!("{}{held_by}", waits.address)
}

/// `3 s`, `2 min`, `5 h`
fn age(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
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

/// Tasks with the same stack and reason, the largest group first.
fn groups(tasks: &[Task]) -> Vec<Vec<&Task>> {
    type Key<'a> = (usize, ThreadState, Option<&'a str>);
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let mut groups: Vec<Vec<&Task>> = Vec::new();
    for task in tasks {
        let reason = task.wait.as_ref().map(|wait| &*wait.reason);
        let place = *places.entry((task.frames.identity(), task.state, reason)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(task),
            None => groups.push(vec![task]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// `196 tasks: 18 19 ..  sleep: chan receive, the oldest for 5 min`
fn heading(group: &[&Task]) -> String {
    let first = group[0];
    let ids: Vec<String> = group.iter().take(LISTED).map(|task| task.id.to_string()).collect();
    let more = if group.len() > LISTED { " .." } else { "" };
    let oldest = group.iter().filter_map(|task| task.wait.as_ref()?.since_ms).max();
    let oldest = oldest.map(|ms| format!(", the oldest for {}", age(ms))).unwrap_or_default();
    let what = match group {
        [one] => waits(one),
        _ => first.wait.as_ref().map(|wait| safe(&wait.reason)),
    };
    let what = what.map(|what| format!(": {what}")).unwrap_or_default();
    let state = format!("  {}{what}{oldest}", first.state.word());
    format!("{}: {}{more}{}\n", paint(BOLD, &tasks(group.len())), ids.join(" "), paint(DIM, &state))
}

fn frames(task: &Task, width: Option<usize>) -> String {
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
