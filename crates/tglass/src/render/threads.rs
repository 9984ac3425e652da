//! The screen of `tglass threads`.

use super::table::{Cell, Table};
use super::{BAD, DIM, FAIR, GOOD, fit, gaps, safe};
use std::time::Duration;
use threadglass::model::{
    Descriptor, Direction, OutsideKind, OutsideWait, Partner, Side, Snapshot, SyncKind, Syscall, Thread, ThreadState,
    WaitsFor,
};

/// Descriptors of one call that are listed.
const DESCRIPTORS: usize = 8;

/// The whole screen, in lines of at most `width` columns. `all` is the number of threads before filtering.
pub fn text(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = headline(snapshot, all, took);
    if !snapshot.threads.is_empty() {
        let mut table = Table::new(&[">LWP", "ID", "NAME", "STATE", ">PRI", ">CPU", "WAITS FOR", "START"]);
        for thread in &snapshot.threads {
            table.row(row(thread));
        }
        out += &table.render_within(width);
    }
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// The first lines: which process, how many threads in which states, and what the look cost it.
pub fn headline(snapshot: &Snapshot, all: usize, took: Duration) -> String {
    let target = &snapshot.target;
    let shown = snapshot.threads.len();
    let count = match (shown, all) {
        (1, 1) => "1 thread".to_owned(),
        (shown, all) if shown == all => format!("{all} threads"),
        (shown, all) => format!("{shown} of {all} threads"),
    };
    let states: Vec<_> = ThreadState::ALL
        .into_iter()
        .filter_map(|state| {
            let n = snapshot.threads.iter().filter(|thread| thread.state == state).count();
            (n > 0).then(|| format!("{n} {}", state.word()))
        })
        .collect();
    // A stopped thread is in the state that it was stopped in.
    let stopped = snapshot.threads.iter().filter(|thread| is_stopped_besides(thread)).count();
    let stopped = if stopped > 0 { format!(" ({stopped} of them stopped)") } else { String::new() };
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    let took = format!("{:.1} ms", took.as_secs_f64() * 1e3);
    format!(
        "{}  {count}{states}{stopped}\n{}\n\n",
        super::target::name(target),
        super::target::how(target, (snapshot.pause_us, snapshot.longest_pause_us), Some(took))
    )
}

fn row(thread: &Thread) -> Vec<Cell> {
    let dash = || Cell::styled("-", DIM);
    let or_dash = |text: Option<String>| text.map_or_else(dash, Cell::from);
    let start = match (&thread.start_function, thread.start) {
        (Some(name), _) => Some(safe(name)),
        (None, Some(addr)) => Some(addr.to_string()),
        (None, None) => None,
    };
    let state = state_of(thread);
    vec![
        or_dash(thread.lwp.map(|lwp| lwp.to_string())),
        or_dash(thread.id.map(|id| id.to_string())),
        or_dash(thread.name.as_deref().map(safe)),
        Cell::styled(state.0, state.1),
        or_dash(thread.priority.map(|priority| priority.to_string())),
        or_dash(thread.cpu.map(|cpu| seconds(cpu.user_ms + cpu.system_ms))),
        or_dash(waits(thread)),
        or_dash(start),
    ]
}

/// What a thread waits for: a lock, who is at the other end of a descriptor, or the call that it is in.
pub(super) fn waits(thread: &Thread) -> Option<String> {
    let outside = || Some(other_end(thread.syscall.as_ref()?, thread.waits_outside.as_deref()?));
    thread.waits_for.as_ref().map(waits_for).or_else(|| outside()?).or_else(|| thread.syscall.as_ref().map(call))
}

/// `read 5: unix socket to mysqld (4711)`; `None` where the call says all.
fn other_end(call: &Syscall, wait: &OutsideWait) -> Option<String> {
    let who = |partner: &Partner| format!("{} ({})", safe(partner.name.as_deref().unwrap_or("process")), partner.pid);
    let first = wait.partners.first().map(who);
    let more = if wait.partners.len() > 1 { format!(" and {} more", wait.partners.len() - 1) } else { String::new() };
    let number = call.descriptors.first().map(|one| format!(" {}", one.number)).unwrap_or_default();
    let what = match wait.kind {
        OutsideKind::Socket => safe(wait.what.as_deref().unwrap_or("socket")),
        OutsideKind::Pipe => {
            let state = if wait.direction == Some(Direction::Output) { "full" } else { "empty" };
            match (call.descriptors.is_empty(), &wait.what) {
                (true, Some(path)) => format!("FIFO {}", safe(path)),
                _ => format!("{state} pipe"),
            }
        }
        OutsideKind::FileLock => format!("lock of {}", safe(wait.what.as_deref().unwrap_or("a file"))),
        OutsideKind::Child => return first.map(|first| format!("{}: child {first}{more}", call.name)),
        OutsideKind::EventLoop => {
            let watched = wait.watched.filter(|watched| *watched > 1)?;
            return Some(format!("{}{number}: event loop of {watched} descriptors", call.name));
        }
        OutsideKind::Disk => {
            let function = wait.wait_channel.as_deref().map(|name| format!(" ({})", safe(name))).unwrap_or_default();
            return Some(format!("{}{number}: disk{function}", call.name));
        }
        // The call says that.
        OutsideKind::Timer | OutsideKind::Signal if call.descriptors.is_empty() => return None,
        OutsideKind::Connection => safe(wait.what.as_deref().unwrap_or("connection")),
        OutsideKind::File => {
            let function = wait.wait_channel.as_deref().map(|name| format!(" ({})", safe(name))).unwrap_or_default();
            format!("{}{function}", safe(wait.what.as_deref()?))
        }
        // A number alone would say little.
        OutsideKind::MessageQueue | OutsideKind::Semaphore
            if wait.what.as_ref().is_some_and(|it| !it.starts_with('/')) =>
        {
            safe(wait.what.as_deref().unwrap_or_default())
        }
        OutsideKind::Terminal | OutsideKind::MessageQueue => match &wait.what {
            Some(what) => format!("{} {}", wait.kind.word(), safe(what)),
            None => wait.kind.word().to_owned(),
        },
        kind => kind.word().to_owned(),
    };
    let joint = if wait.kind == OutsideKind::FileLock { ", held by" } else { " to" };
    let whom = first.map(|first| format!("{joint} {first}{more}")).unwrap_or_default();
    Some(format!("{}{number}: {what}{whom}", call.name))
}

/// Whether a thread is stopped while its state says what it did before that.
fn is_stopped_besides(thread: &Thread) -> bool {
    thread.stop.is_some() && !matches!(thread.state, ThreadState::Stopped | ThreadState::StoppedAsleep)
}

/// The state in words, and how it looks.
pub(super) fn state_of(thread: &Thread) -> (String, anstyle::Style) {
    let mut text = thread.state.word().replace('_', " ");
    if thread.exiting {
        text += " (exiting)";
    }
    if thread.db_suspended {
        text += " (suspended)";
    } else if is_stopped_besides(thread) {
        text += " (stopped)";
    }
    let style = match thread.state {
        _ if thread.stop.is_some() => FAIR,
        ThreadState::Active => GOOD,
        ThreadState::Run | ThreadState::Stopped | ThreadState::StoppedAsleep => FAIR,
        ThreadState::Unknown => BAD,
        ThreadState::Zombie => DIM,
        ThreadState::Sleep => anstyle::Style::new(),
    };
    (text, style)
}

/// `mutex left < 4711`: what it waits for, and who holds that.
fn waits_for(waits: &WaitsFor) -> String {
    if let (SyncKind::Join, Some(thread)) = (waits.kind, waits.held_by.first()) {
        return format!("the end of {thread}");
    }
    let name = waits.name.as_deref().map_or_else(|| waits.address.to_string(), safe);
    let side = match waits.side {
        Some(Side::Read) => "read ",
        Some(Side::Write) => "write ",
        None => "",
    };
    let held_by: Vec<String> = waits.held_by.iter().take(3).map(ToString::to_string).collect();
    let more = if waits.held_by.len() > 3 { " .." } else { "" };
    let held_by = if held_by.is_empty() { String::new() } else { format!(", held by {}{more}", held_by.join(", ")) };
    match name.starts_with("the ") {
        true => format!("{side}{name}{held_by}"),
        false => format!("{side}{} {name}{held_by}", waits.kind.word()),
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:02}s", ms / 1000, ms % 1000 / 10)
}

/// A system call with the arguments that tell most: the word of a futex, the descriptors of input and output.
fn call(call: &Syscall) -> String {
    let name = &*call.name;
    let descriptor = |descriptor: &Descriptor| match &descriptor.file {
        Some(file) => format!("{} {}", descriptor.number, safe(file)),
        None => descriptor.number.to_string(),
    };
    match call.descriptors.as_slice() {
        [] if name == "futex" => format!("futex {:#x}", call.args[0]),
        [] => name.to_owned(),
        [one] => format!("{name} fd {}", descriptor(one)),
        many => {
            let shown: Vec<String> = many.iter().take(DESCRIPTORS).map(|one| one.number.to_string()).collect();
            let more = if many.len() > DESCRIPTORS { ", .." } else { "" };
            format!("{name} fds {}{more}", shown.join(", "))
        }
    }
}
