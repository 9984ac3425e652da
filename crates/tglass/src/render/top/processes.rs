//! The list of processes.

use super::Look;
use super::list::{Cell, Column, Rows};
use crate::render::safe;
use crate::render::why::headword;
use std::cmp::Ordering;
use threadglass::Pid;
use threadglass::model::{Certainty, Machine, ProcessToSee};

const COLUMNS: &[Column] = &[
    Column::number("PID", 7),
    Column::text("NAME", 15),
    Column::text("STATE", 25),
    Column::number("BEHIND", 6),
    Column::text("WHY", 20),
];

pub struct ProcessRows<'a> {
    seen: Option<&'a Machine>,
}

impl<'a> ProcessRows<'a> {
    pub fn new(seen: &'a Option<Machine>) -> Self {
        Self { seen: seen.as_ref() }
    }

    fn process(&self, row: usize) -> Option<&'a ProcessToSee> {
        self.seen?.processes_to_see.get(row)
    }
}

impl Rows for ProcessRows<'_> {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn len(&self) -> usize {
        self.seen.map_or(0, |seen| seen.processes_to_see.len())
    }

    fn key(&self, row: usize) -> u64 {
        self.process(row).map_or(0, |process| u64::try_from(process.pid.0).unwrap_or(0))
    }

    fn cell(&self, row: usize, column: usize) -> Cell {
        let Some(process) = self.process(row) else { return (String::new(), Look::Plain) };
        match column {
            0 => (process.pid.to_string(), Look::Plain),
            1 => (safe(&process.name), Look::Plain),
            2 => {
                let (word, style) = headword(process.verdict.kind);
                let sure = if process.verdict.certainty == Certainty::Certain { "" } else { "?" };
                (format!("{word}{sure}"), Look::from(style))
            }
            3 if process.behind.is_empty() => ("-".to_owned(), Look::Dim),
            3 => (process.behind.len().to_string(), Look::Plain),
            _ => (safe(&process.verdict.text), Look::Plain),
        }
    }

    fn compare(&self, column: usize, a: usize, b: usize) -> Ordering {
        let (Some(x), Some(y)) = (self.process(a), self.process(b)) else { return Ordering::Equal };
        match column {
            0 => x.pid.cmp(&y.pid),
            1 => x.name.cmp(&y.name),
            2 => x.verdict.kind.cmp(&y.verdict.kind),
            3 => y.behind.len().cmp(&x.behind.len()),
            _ => x.verdict.text.cmp(&y.verdict.text),
        }
    }

    /// As the look has them: the worst first.
    fn usual(&self, a: usize, b: usize) -> Ordering {
        a.cmp(&b)
    }

    fn text(&self, row: usize) -> String {
        let Some(process) = self.process(row) else { return String::new() };
        let (word, _) = headword(process.verdict.kind);
        format!("{} {} {word} {}", process.pid, safe(&process.name), safe(&process.verdict.text))
    }

    fn more(&self, row: usize) -> Vec<Cell> {
        let Some(process) = self.process(row) else { return Vec::new() };
        let pids = |pids: &[Pid]| pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
        let mut lines = vec![(safe(&process.verdict.text), Look::Plain)];
        if !process.circle.is_empty() {
            lines.push((format!("in the same circle: {}", pids(&process.circle)), Look::Plain));
        }
        if !process.behind.is_empty() {
            lines.push((format!("wait for it: {}", pids(&process.behind)), Look::Plain));
        }
        lines
    }

    fn nothing(&self) -> &'static str {
        match self.seen {
            Some(_) => {
                "no process that can be looked into hangs, is stopped or waits for another (p goes to one by its PID)"
            }
            None => "looking ..",
        }
    }
}
