//! The list of tasks: goroutines and the like.

use super::Look;
use super::list::{Cell, Column, Rows};
use super::state::LookState;
use crate::render::{safe, stacks, sync, tasks};
use std::cmp::Ordering;
use std::collections::HashSet;
use threadglass::model::{Snapshot, Task, TaskWaitsFor, ThreadState, ThreadType};

const COLUMNS: &[Column] = &[
    Column::number("TASK", 8),
    Column::text("STATE", 7),
    Column::number("LWP", 7),
    Column::number("SINCE", 7),
    Column::text("START", 20),
    Column::text("MADE BY", 24).from(130),
    Column::text("WAITS FOR", 20),
];

pub struct TaskRows<'a> {
    pub look: Option<&'a LookState>,
    pub explained: Option<&'a Snapshot>,
    /// Members of hangs.
    pub stuck: HashSet<u64>,
}

/// What a task waits for, with who holds that, where the last explanation found it and the task still waits for the same.
pub fn objects<'a>(explained: Option<&'a Snapshot>, task: &'a Task) -> &'a [TaskWaitsFor] {
    let addresses =
        |task: &Task| task.wait.iter().flat_map(|wait| &wait.objects).map(|it| it.address).collect::<Vec<_>>();
    let known = explained.and_then(|explained| explained.tasks.iter().find(|known| known.id == task.id));
    let same = known.filter(|known| addresses(known) == addresses(task)).unwrap_or(task);
    same.wait.as_ref().map(|wait| wait.objects.as_slice()).unwrap_or_default()
}

impl<'a> TaskRows<'a> {
    fn task(&self, row: usize) -> Option<&'a Task> {
        self.look?.snapshot.tasks.get(row)
    }
}

/// How long it has waited, where that is known.
fn since(task: &Task) -> Option<u64> {
    task.wait.as_ref().and_then(|wait| wait.since_ms)
}

impl Rows for TaskRows<'_> {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn len(&self) -> usize {
        self.look.map_or(0, |look| look.snapshot.tasks.len())
    }

    fn key(&self, row: usize) -> u64 {
        self.task(row).map_or(0, |task| task.id)
    }

    fn cell(&self, row: usize, column: usize) -> Cell {
        let Some(task) = self.task(row) else { return (String::new(), Look::Plain) };
        let dash = || ("-".to_owned(), Look::Dim);
        let text = |text: Option<String>| text.map_or_else(dash, |text| (text, Look::Plain));
        match column {
            0 if self.stuck.contains(&task.id) => (format!("!{}", task.id), Look::Bad),
            0 => (task.id.to_string(), Look::Plain),
            1 => (
                task.state.word().to_owned(),
                match task.state {
                    ThreadState::Active => Look::Good,
                    ThreadState::Run => Look::Fair,
                    _ => Look::Plain,
                },
            ),
            2 => text(task.carried_by.map(|lwp| lwp.to_string())),
            3 => text(since(task).map(sync::duration)),
            4 => text(task.start_function.as_deref().map(safe)),
            5 => text(task.created_by.as_deref().map(tasks::place)),
            _ => {
                let holder = objects(self.explained, task).iter().find_map(|object| object.held_by.first());
                let holder = holder.map(|id| format!(" < {id}")).unwrap_or_default();
                text(tasks::waits(task).map(|waits| waits + &holder))
            }
        }
    }

    fn compare(&self, column: usize, a: usize, b: usize) -> Ordering {
        let (Some(x), Some(y)) = (self.task(a), self.task(b)) else { return Ordering::Equal };
        match column {
            0 => x.id.cmp(&y.id),
            1 => x.state.word().cmp(y.state.word()),
            2 => (x.carried_by.is_none(), x.carried_by).cmp(&(y.carried_by.is_none(), y.carried_by)),
            3 => since(y).cmp(&since(x)),
            4 => x.start_function.cmp(&y.start_function),
            5 => x.created_by.as_deref().map(tasks::place).cmp(&y.created_by.as_deref().map(tasks::place)),
            _ => {
                let reason = |task: &Task| task.wait.as_ref().map(|wait| wait.reason.clone());
                (reason(x).is_none(), reason(x)).cmp(&(reason(y).is_none(), reason(y)))
            }
        }
    }

    /// Members of hangs first, then those that run, then those that could; the runtime's own last.
    fn usual(&self, a: usize, b: usize) -> Ordering {
        let rank = |row| match self.task(row) {
            Some(task) if self.stuck.contains(&task.id) => 0,
            Some(task) if task.kind == ThreadType::System => 4,
            Some(task) if task.state == ThreadState::Active => 1,
            Some(task) if task.state == ThreadState::Run => 2,
            _ => 3,
        };
        rank(a).cmp(&rank(b)).then_with(|| self.key(a).cmp(&self.key(b)))
    }

    fn text(&self, row: usize) -> String {
        let Some(task) = self.task(row) else { return String::new() };
        let start = task.start_function.as_deref().map(safe).unwrap_or_default();
        format!("{} {} {start} {}", task.id, task.state.word(), tasks::waits(task).unwrap_or_default())
    }

    fn more(&self, row: usize) -> Vec<Cell> {
        let Some(task) = self.task(row) else { return Vec::new() };
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        let frames = task.frames.iter().enumerate();
        let mut lines: Vec<Cell> = frames
            .map(|(number, frame)| (format!("#{number:<2} {}", plain(stacks::line(frame))), Look::Plain))
            .collect();
        if lines.is_empty() {
            let why = if task.carried_by.is_some() { "no stack: the task was running" } else { ".." };
            lines.push((why.to_owned(), Look::Dim));
        }
        if let Some(maker) = task.created_by.as_deref() {
            lines.push((format!("made by {}", plain(stacks::line(maker))), Look::Dim));
        }
        lines
    }

    fn nothing(&self) -> &'static str {
        if self.look.is_some() { "no tasks" } else { "looking .." }
    }
}
