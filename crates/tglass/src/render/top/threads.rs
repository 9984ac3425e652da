//! The list of threads.

use super::Look;
use super::list::{Cell, Column, Rows};
use super::state::{LookState, Times};
use crate::render::{safe, stacks, sync, threads};
use std::cmp::Ordering;
use threadglass::model::{Snapshot, StackEnd, Thread, ThreadState, ThreadStats};

const COLUMNS: &[Column] = &[
    Column::number("LWP", 7),
    Column::text("NAME", 14),
    Column::text("STATE", 7),
    Column::number("CPU%", 5),
    Column::number("RUNQ%", 5),
    Column::number("LCK%", 5),
    Column::number("SLP%", 5),
    Column::text("HOLDS", 24).from(120),
    Column::text("START", 24).from(160),
    Column::text("WAITS FOR", 20),
];

pub struct ThreadRows<'a> {
    pub look: Option<&'a LookState>,
    pub times: &'a Times,
    pub explained: Option<&'a Snapshot>,
}

impl<'a> ThreadRows<'a> {
    fn thread(&self, row: usize) -> Option<&'a Thread> {
        self.look?.snapshot.threads.get(row)
    }

    fn times(&self, row: usize) -> Option<&ThreadStats> {
        self.times.of(self.thread(row)?.lwp?)
    }

    /// What a thread waits for, as far as the last look read that; else as the last explanation knew it.
    fn waits(&self, thread: &Thread) -> Option<String> {
        let detail = self.look?.detail(thread);
        if detail.waits_for.is_some() || detail.syscall.is_none() {
            // There is not much room: `mutex table < 4711`.
            return threads::waits(detail).map(|text| text.replace(", held by ", " < "));
        }
        let known = self.explained?.threads.iter().find(|known| known.lwp == thread.lwp);
        let same =
            known.filter(|known| known.waits_outside.is_some() && (known.sp, known.pc) == (thread.sp, thread.pc));
        threads::waits(same.unwrap_or(detail))
    }
}

/// What a thread holds: `a, table_lock`.
fn holds(thread: &Thread) -> String {
    let name = |held: &threadglass::model::Holds| held.name.as_deref().map_or_else(|| held.address.to_string(), safe);
    thread.holds.iter().take(4).map(name).collect::<Vec<_>>().join(", ")
}

fn percent(value: Option<f64>) -> Cell {
    match value {
        None => ("-".to_owned(), Look::Dim),
        Some(value) if value < 0.05 => ("0".to_owned(), Look::Dim),
        Some(value) if value >= 99.95 => ("100".to_owned(), Look::Plain),
        Some(value) => (format!("{value:.1}"), Look::Plain),
    }
}

impl Rows for ThreadRows<'_> {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn len(&self) -> usize {
        self.look.map_or(0, |look| look.snapshot.threads.len())
    }

    fn key(&self, row: usize) -> u64 {
        let lwp = self.thread(row).and_then(|thread| thread.lwp);
        // One that has ended, and waits to be joined, is known by its descriptor.
        let id = || self.thread(row).and_then(|thread| thread.id).map_or(row as u64, |id| id.0.0);
        lwp.map_or_else(id, |lwp| u64::try_from(lwp.0).unwrap_or(0))
    }

    fn cell(&self, row: usize, column: usize) -> Cell {
        let Some(thread) = self.thread(row) else { return (String::new(), Look::Plain) };
        let times = self.times(row);
        let dash = || ("-".to_owned(), Look::Dim);
        let is_stuck = thread.lwp.zip(self.look).is_some_and(|(lwp, look)| look.is_stuck(lwp));
        match column {
            0 => match thread.lwp {
                Some(lwp) if is_stuck => (format!("!{lwp}"), Look::Bad),
                Some(lwp) => (lwp.to_string(), Look::Plain),
                None => dash(),
            },
            1 => thread.name.as_deref().map_or_else(dash, |name| (safe(name), Look::Plain)),
            2 => state(thread),
            3 => percent(times.map(|times| times.cpu)),
            4 => percent(times.map(|times| times.runqueue)),
            5 => percent(times.and_then(|times| times.lock)),
            6 => percent(times.map(|times| times.sleep)),
            7 if thread.holds.is_empty() => dash(),
            7 => (holds(thread), Look::Plain),
            8 => thread.start_function.as_deref().map_or_else(dash, |name| (safe(name), Look::Plain)),
            _ => {
                let look = if is_stuck { Look::Bad } else { Look::Plain };
                self.waits(thread).map_or_else(dash, |text| (text, look))
            }
        }
    }

    fn compare(&self, column: usize, a: usize, b: usize) -> Ordering {
        let (Some(x), Some(y)) = (self.thread(a), self.thread(b)) else { return Ordering::Equal };
        // Of numbers the largest is first.
        let by = |of: fn(&ThreadStats) -> f64| {
            let value = |row| self.times(row).map_or(-1.0, of);
            value(b).total_cmp(&value(a))
        };
        match column {
            0 => x.lwp.cmp(&y.lwp),
            1 => x.name.cmp(&y.name),
            2 => x.state.word().cmp(y.state.word()),
            3 => by(|times| times.cpu),
            4 => by(|times| times.runqueue),
            5 => by(|times| times.lock.unwrap_or(-1.0)),
            6 => by(|times| times.sleep),
            7 => y.holds.len().cmp(&x.holds.len()),
            8 => x.start_function.cmp(&y.start_function),
            _ => {
                // Whoever waits for the same stands together, locks first.
                let object = |thread: &Thread| thread.waits_for.as_ref().map(|waits| waits.address);
                let call = |thread: &Thread| thread.syscall.as_ref().map(|call| call.number);
                (object(x).is_none(), object(x), call(x)).cmp(&(object(y).is_none(), object(y), call(y)))
            }
        }
    }

    /// Members of hangs first, then the busiest.
    fn usual(&self, a: usize, b: usize) -> Ordering {
        let is_stuck = |row| {
            let look = self.look.zip(self.thread(row).and_then(|thread| thread.lwp));
            look.is_some_and(|(look, lwp)| look.is_stuck(lwp))
        };
        let busy = |row| self.times(row).map_or([0.0; 3], |it| [it.cpu, it.runqueue, it.lock.unwrap_or(0.0)]);
        let by_time = busy(a).into_iter().zip(busy(b)).map(|(a, b)| b.total_cmp(&a)).find(|order| order.is_ne());
        let lwp = |row| self.thread(row).and_then(|thread| thread.lwp);
        is_stuck(b)
            .cmp(&is_stuck(a))
            .then(by_time.unwrap_or(Ordering::Equal))
            .then_with(|| lwp(a).is_none().cmp(&lwp(b).is_none()))
            .then(lwp(a).cmp(&lwp(b)))
    }

    fn text(&self, row: usize) -> String {
        let Some(thread) = self.thread(row) else { return String::new() };
        let lwp = thread.lwp.map(|lwp| lwp.to_string()).unwrap_or_default();
        let name = thread.name.as_deref().map(safe).unwrap_or_default();
        let start = thread.start_function.as_deref().map(safe).unwrap_or_default();
        let waits = self.waits(thread).unwrap_or_default();
        format!("{lwp} {name} {} {waits} {start} {}", thread.state.word(), holds(thread))
    }

    fn more(&self, row: usize) -> Vec<Cell> {
        let Some((thread, look)) = self.thread(row).zip(self.look) else { return Vec::new() };
        let detail = look.detail(thread);
        if detail.frames.is_empty() {
            let why = match (thread.lwp, detail.state) {
                (None, _) => "the thread has ended",
                (_, ThreadState::Active | ThreadState::Run) => {
                    "no stack: the thread was running (tglass profil shows where)"
                }
                _ if thread.lwp.is_some_and(|lwp| look.details.contains_key(&lwp)) => "no stack could be read",
                _ => "..",
            };
            return vec![(why.to_owned(), Look::Dim)];
        }
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        let frames = detail.frames.iter().enumerate();
        let mut lines: Vec<Cell> = frames
            .map(|(number, frame)| (format!("#{number:<2} {}", plain(stacks::line(frame))), Look::Plain))
            .collect();
        match &detail.frames_end {
            Some(StackEnd::Unknown { why }) => lines.push((format!("not seen further: {}", safe(why)), Look::Fair)),
            Some(StackEnd::Limit) => lines.push(("not seen further: deeper than the limit".to_owned(), Look::Fair)),
            Some(StackEnd::Start) | None => {}
        }
        lines
    }

    fn nothing(&self) -> &'static str {
        if self.look.is_some() { "no threads" } else { "looking .." }
    }
}

fn state(thread: &Thread) -> Cell {
    let (text, style) = threads::state_of(thread);
    (text, Look::from(style))
}

/// How a thread is called in a sentence: `worker (4711)`.
pub fn name(thread: &Thread) -> String {
    let lwp = thread.lwp.map_or_else(|| "ended".to_owned(), |lwp| lwp.to_string());
    match &thread.name {
        Some(name) => format!("{} ({lwp})", safe(name)),
        None => format!("thread {lwp}"),
    }
}

/// What it waits for in a sentence, with the name of the lock.
pub fn waits_in_words(look: &LookState, thread: &Thread) -> Option<String> {
    let detail = look.detail(thread);
    match &detail.waits_for {
        Some(waits) => Some(format!("waits {}", sync::waits_for(waits, look.object(waits.address)))),
        None => threads::waits(detail).map(|call| format!("in {call}")),
    }
}
