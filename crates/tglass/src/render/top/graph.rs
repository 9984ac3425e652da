//! The waits of what is selected: for whom it waits, for whom that one does, and who waits for it.

use super::list::Cell;
use super::state::{LookState, ProcessState, Tab};
use super::{Look, locks, tasks as task_rows, threads};
use crate::render::{sync, tasks};
use threadglass::Lwp;
use threadglass::model::{SyncObject, Task, Thread};

/// How many waits are followed, and how many lines that may give.
const DEPTH: usize = 12;
const LINES: usize = 64;
/// Threads that are named of those that wait for one.
const NAMED: usize = 6;

/// What is said of the selected row.
pub fn lines(process: &ProcessState) -> Vec<Cell> {
    let Some((look, row)) = process.look.as_ref().zip(process.place().row()) else { return Vec::new() };
    match process.tab {
        Tab::Threads => look.snapshot.threads.get(row).map(|thread| of_thread(look, thread)),
        Tab::Locks => look.snapshot.objects.get(row).map(|object| of_lock(look, object)),
        Tab::Tasks => look.snapshot.tasks.get(row).map(|task| of_task(process, look, task)),
    }
    .unwrap_or_default()
}

fn of_thread(look: &LookState, thread: &Thread) -> Vec<Cell> {
    let mut lines = vec![(format!("Waits of {}", threads::name(thread)), Look::Bold)];
    follow(look, thread, &mut Vec::new(), &mut lines);
    let mut behind: Vec<String> = Vec::new();
    let mut number = 0;
    for held in &thread.holds {
        let waiters = look.object(held.address).map(|object| object.waiters.as_slice()).unwrap_or_default();
        number += waiters.len();
        for waiter in waiters.iter().take(NAMED.saturating_sub(behind.len())) {
            behind.push(look.thread(waiter.lwp).map_or_else(|| format!("thread {}", waiter.lwp), threads::name));
        }
    }
    let more = if number > behind.len() { ", .." } else { "" };
    match (number, thread.holds.len()) {
        (0, 0) => {}
        (0, _) => lines.push((format!("holds {}; nobody waits for that", held(look, thread)), Look::Plain)),
        (1, _) => {
            lines.push((format!("holds {}; 1 thread waits for that: {}", held(look, thread), behind[0]), Look::Plain))
        }
        _ => lines.push((
            format!("holds {}; {number} threads wait for that: {}{more}", held(look, thread), behind.join(", ")),
            Look::Plain,
        )),
    }
    lines
}

fn held(look: &LookState, thread: &Thread) -> String {
    let label = |held: &threadglass::model::Holds| {
        let inferred = if held.evidence == threadglass::model::Evidence::Inferred { " (inferred)" } else { "" };
        look.object(held.address).map_or_else(|| held.address.to_string(), sync::label) + inferred
    };
    thread.holds.iter().take(NAMED).map(label).collect::<Vec<_>>().join(", ")
}

/// Follows the wait of a thread from holder to holder. `path` are the threads on the way here.
fn follow(look: &LookState, thread: &Thread, path: &mut Vec<Lwp>, lines: &mut Vec<Cell>) {
    if lines.len() >= LINES {
        return;
    }
    let depth = path.len();
    let pad = "  ".repeat(depth + 1);
    let Some(text) = threads::waits_in_words(look, thread) else {
        lines.push((format!("{pad}{}", doing(thread)), Look::Plain));
        return;
    };
    let object = thread.waits_for.as_ref().and_then(|waits| look.object(waits.address));
    let Some(object) = object else {
        lines.push((format!("{pad}{text}"), Look::Plain));
        return;
    };
    let holders = locks::holders(look, object);
    let held = match (holders.len(), object.state.is_held()) {
        (0, true) => ", held by nobody that is known",
        (0, false) => "",
        _ => ", held by",
    };
    lines.push((format!("{pad}{text}{held}"), Look::Plain));
    path.extend(thread.lwp);
    for (holder, words) in object.holders.iter().zip(&holders) {
        let own = holder.lwp.filter(|_| holder.pid.is_none());
        let pad = "  ".repeat(depth + 2);
        match own {
            Some(lwp) if path.contains(&lwp) => {
                lines.push((format!("{pad}{words}: the circle is closed"), Look::Bad));
            }
            Some(lwp) if depth < DEPTH => {
                lines.push((format!("{pad}{words}"), Look::Plain));
                if let Some(next) = look.thread(lwp) {
                    follow(look, next, path, lines);
                }
            }
            _ => lines.push((format!("{pad}{words}"), Look::Plain)),
        }
    }
    for words in holders.iter().skip(object.holders.len()) {
        lines.push((format!("{}{words}", "  ".repeat(depth + 2)), Look::Plain));
    }
    if thread.lwp.is_some() {
        path.pop();
    }
}

/// Of a thread that waits for nothing.
fn doing(thread: &Thread) -> String {
    match &thread.stop {
        Some(stop) => format!("is {}", crate::render::safe(&stop.text())),
        None => format!("waits for nothing: {}", thread.state.word()),
    }
}

/// A lock with those who hold it and wait for it.
pub fn of_lock(look: &LookState, object: &SyncObject) -> Vec<Cell> {
    let mut lines = vec![(format!("{}: {}", sync::label(object), sync::state(object)), Look::Bold)];
    let holders = locks::holders(look, object);
    match holders.is_empty() {
        true if object.state.is_held() => lines.push(("  held by nobody that is known".to_owned(), Look::Fair)),
        true => {}
        false => lines.extend(holders.iter().take(LINES).map(|holder| (format!("  held by {holder}"), Look::Plain))),
    }
    if let Some(contention) = object.stats.as_ref().and_then(|stats| stats.contention()) {
        let time = |ns: u64| crate::render::contend::time(ns as f64);
        let text = format!(
            "  half of the waits took up to {}, 99 of 100 up to {}",
            time(contention.p50_ns),
            time(contention.p99_ns)
        );
        lines.push((text, Look::Plain));
    }
    for waiter in object.waiters.iter().take(LINES) {
        let name = match (waiter.pid, look.thread(waiter.lwp)) {
            (Some(pid), _) => format!("thread {} of process {pid}", waiter.lwp),
            (None, Some(thread)) => threads::name(thread),
            (None, None) => format!("thread {}", waiter.lwp),
        };
        let timed = if waiter.timed { " (with a time limit)" } else { "" };
        lines.push((format!("  waited for by {name}{timed}"), Look::Plain));
    }
    lines.extend(
        object
            .waiting_tasks
            .iter()
            .take(LINES)
            .map(|it| (format!("  waited for by {}", crate::render::locks::task(it)), Look::Plain)),
    );
    lines
}

fn of_task(process: &ProcessState, look: &LookState, task: &Task) -> Vec<Cell> {
    let mut lines = vec![(format!("Waits of {}", task_name(task)), Look::Bold)];
    follow_task(process, look, task, &mut Vec::new(), &mut lines);
    if let Some(parent) = task.parent {
        lines.push((format!("made by task {parent}"), Look::Plain));
    }
    lines
}

fn task_name(task: &Task) -> String {
    let start = task.start_function.as_deref().map(|name| format!(" ({})", crate::render::safe(name)));
    format!("task {}{}", task.id, start.unwrap_or_default())
}

/// Follows the wait of a task from holder to holder. `path` are the tasks on the way here.
fn follow_task(process: &ProcessState, look: &LookState, task: &Task, path: &mut Vec<u64>, lines: &mut Vec<Cell>) {
    if lines.len() >= LINES || path.len() >= DEPTH {
        return;
    }
    let pad = "  ".repeat(path.len() + 1);
    match (tasks::waits(task), task.carried_by) {
        (Some(text), _) => lines.push((format!("{pad}waits: {text}"), Look::Plain)),
        (None, Some(lwp)) => {
            let name = look.thread(lwp).map_or_else(|| format!("thread {lwp}"), threads::name);
            lines.push((format!("{pad}{} on {name}", task.status), Look::Plain));
        }
        (None, None) => lines.push((format!("{pad}{}", task.status), Look::Plain)),
    }
    path.push(task.id);
    for object in task_rows::objects(process.explained.as_ref(), task) {
        let enders = object.held_by.iter().map(|id| (id, format!("the {} is held by", object.kind.word())));
        let enders = enders.chain(object.woken_by.iter().map(|id| (id, "could be woken by".to_owned())));
        for (id, how) in enders.take(NAMED) {
            let next = look.snapshot.tasks.iter().find(|task| task.id == *id);
            let name = next.map_or_else(|| format!("task {id}"), task_name);
            if path.contains(id) {
                lines.push((format!("{pad}{how} {name}: the circle is closed"), Look::Bad));
                continue;
            }
            lines.push((format!("{pad}{how} {name}"), Look::Plain));
            if let Some(next) = next {
                follow_task(process, look, next, path, lines);
            }
        }
    }
    path.pop();
}
