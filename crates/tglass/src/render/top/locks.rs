//! The list of locks.

use super::Look;
use super::list::{Cell, Column, Rows};
use super::state::LookState;
use crate::render::locks::task;
use crate::render::{contend, safe, sync};
use std::cmp::{Ordering, Reverse};
use threadglass::model::{Evidence, SyncObject};

const COLUMNS: &[Column] = &[
    Column::number("WAITED", 8),
    Column::number("WAITS", 8),
    Column::number("WAITERS", 7),
    Column::text("KIND", 12),
    Column::text("STATE", 14),
    Column::text("HELD BY", 16),
    Column::text("ADDRESS", 14).from(110),
    Column::text("NAME", 10),
];

/// Holders that are named in the list.
const NAMED: usize = 2;

pub struct LockRows<'a> {
    pub look: Option<&'a LookState>,
}

impl<'a> LockRows<'a> {
    fn object(&self, row: usize) -> Option<&'a SyncObject> {
        self.look?.snapshot.objects.get(row)
    }
}

/// Waits and their time, where the object is tracked.
fn waited(object: &SyncObject) -> Option<(u64, u64)> {
    object.stats.as_ref().map(|stats| stats.waits())
}

fn waiters(object: &SyncObject) -> usize {
    object.waiters.len() + object.waiting_tasks.len()
}

/// Who holds it, in few words.
pub fn holders(look: &LookState, object: &SyncObject) -> Vec<String> {
    let threads = object.holders.iter().map(|holder| {
        let own = holder.lwp.filter(|_| holder.pid.is_none()).and_then(|lwp| look.thread(lwp));
        sync::holder(holder, own.map(super::threads::name))
    });
    threads.chain(object.holding_tasks.iter().map(|it| task(it) + " (inferred)")).collect()
}

impl Rows for LockRows<'_> {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn len(&self) -> usize {
        self.look.map_or(0, |look| look.snapshot.objects.len())
    }

    fn key(&self, row: usize) -> u64 {
        self.object(row).map_or(0, |object| object.address.0)
    }

    fn cell(&self, row: usize, column: usize) -> Cell {
        let Some((object, look)) = self.object(row).zip(self.look) else { return (String::new(), Look::Plain) };
        let dash = || ("-".to_owned(), Look::Dim);
        match column {
            0 => waited(object).map_or_else(dash, |(_, ns)| (contend::time(ns as f64), Look::Plain)),
            1 => waited(object).map_or_else(dash, |(waits, _)| (waits.to_string(), Look::Plain)),
            2 => match waiters(object) {
                0 => dash(),
                number => (number.to_string(), Look::Bold),
            },
            3 if object.evidence == Evidence::Inferred => (format!("{}?", sync::what(object)), Look::Fair),
            3 => (sync::what(object), Look::Plain),
            4 => (sync::state(object), Look::Plain),
            5 => {
                let holders = holders(look, object);
                match holders.len() {
                    0 if object.state.is_held() => ("unknown".to_owned(), Look::Fair),
                    0 => dash(),
                    number if number > NAMED => (format!("{} and {} more", holders[0], number - 1), Look::Plain),
                    _ => (holders.join(", "), Look::Plain),
                }
            }
            6 => (object.address.to_string(), Look::Plain),
            _ => match &object.name {
                Some(name) => (safe(name), Look::Plain),
                None => (object.address.to_string(), Look::Dim),
            },
        }
    }

    fn compare(&self, column: usize, a: usize, b: usize) -> Ordering {
        let (Some(x), Some(y)) = (self.object(a), self.object(b)) else { return Ordering::Equal };
        match column {
            0 => Reverse(waited(x).map(|it| it.1)).cmp(&Reverse(waited(y).map(|it| it.1))),
            1 => Reverse(waited(x).map(|it| it.0)).cmp(&Reverse(waited(y).map(|it| it.0))),
            2 => waiters(y).cmp(&waiters(x)),
            3 => sync::what(x).cmp(&sync::what(y)),
            4 => x.state.word().cmp(y.state.word()),
            5 => y.holders.len().cmp(&x.holders.len()),
            6 => x.address.cmp(&y.address),
            _ => (x.name.is_none(), &x.name).cmp(&(y.name.is_none(), &y.name)),
        }
    }

    /// By the time waited where that is counted, then by those who wait now.
    fn usual(&self, a: usize, b: usize) -> Ordering {
        self.compare(0, a, b).then_with(|| self.compare(2, a, b)).then_with(|| self.compare(6, a, b))
    }

    fn text(&self, row: usize) -> String {
        let Some((object, look)) = self.object(row).zip(self.look) else { return String::new() };
        format!("{} {} {}", sync::label(object), sync::state(object), holders(look, object).join(" "))
    }

    fn more(&self, row: usize) -> Vec<Cell> {
        let Some((object, look)) = self.object(row).zip(self.look) else { return Vec::new() };
        super::graph::of_lock(look, object)
    }

    fn nothing(&self) -> &'static str {
        if self.look.is_some() { "no lock is waited for, and none is known to be held" } else { "looking .." }
    }
}
