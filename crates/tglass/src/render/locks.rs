//! The screen of `tglass locks`.

use super::sync::{holder, state, thread_name, what};
use super::table::{Cell, Table};
use super::{DIM, FAIR, fit, gaps, safe};
use std::time::Duration;
use threadglass::Lwp;
use threadglass::model::{Evidence, Side, Snapshot, SyncObject, SyncStats, TaskRef};

/// Holders and waiters listed of one object.
const LISTED: usize = 4;

/// The whole screen, in lines of at most `width` columns.
pub fn text(snapshot: &Snapshot, took: Duration, width: Option<usize>) -> String {
    let mut out = super::threads::headline(snapshot, snapshot.threads.len(), took);
    if snapshot.objects.is_empty() {
        out += "no locks found: none is waited for, and none is known to be held\n";
    } else {
        let counted = snapshot.objects.iter().any(|object| object.stats.is_some());
        let mut headings = vec!["ADDRESS", "KIND", "STATE", "HELD BY", "WAITERS"];
        if counted {
            headings.extend([">USES", ">WAITS", ">WAITED"]);
        }
        headings.push("NAME");
        let mut table = Table::new(&headings);
        for object in &snapshot.objects {
            let mut cells = row(snapshot, object);
            if counted {
                let at = cells.len() - 1;
                cells.splice(at..at, counts(object));
            }
            table.row(cells);
        }
        out += &table.render_within(width);
    }
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// How often it was used, how often that took a wait, and how long in all.
fn counts(object: &SyncObject) -> [Cell; 3] {
    let Some(stats) = &object.stats else { return [(); 3].map(|()| Cell::styled("-", DIM)) };
    let uses = match stats {
        SyncStats::Lock(lock) => lock.lock,
        SyncStats::Cond(cond) => u64::from(cond.wait) + u64::from(cond.timedwait),
        SyncStats::Rwlock(lock) => u64::from(lock.read.lock) + u64::from(lock.write.lock),
        SyncStats::Semaphore(sem) => sem.wait.into(),
        SyncStats::Barrier(barrier) => barrier.wait.into(),
    };
    let (waits, ns) = stats.waits();
    [Cell::from(uses.to_string()), Cell::from(waits.to_string()), Cell::from(super::contend::time(ns as f64))]
}

/// `task 18`, `task 18 (send)`
pub(super) fn task(one: &TaskRef) -> String {
    // The future of block_on has no number.
    let name = if one.task == 0 { "block_on".to_owned() } else { format!("task {}", one.task) };
    match one.channel_use {
        Some(channel_use) => format!("{name} ({})", channel_use.word()),
        None => name,
    }
}

fn row(snapshot: &Snapshot, object: &SyncObject) -> Vec<Cell> {
    let dash = || Cell::styled("-", DIM);
    let name = |lwp: Lwp| snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp)).map(thread_name);
    let listed = |all: Vec<String>| match all.len() {
        0 => None,
        number if number > LISTED => Some(format!("{} .. ({number})", all[..LISTED].join(", "))),
        _ => Some(all.join(", ")),
    };
    let holders = object.holders.iter().map(|one| holder(one, one.lwp.filter(|_| one.pid.is_none()).and_then(name)));
    let holders = holders.chain(object.holding_tasks.iter().map(|it| {
        let how = if it.evidence == Evidence::Inferred { " (inferred)" } else { "" };
        task(it) + how
    }));
    let side = |side: Option<Side>| match side {
        Some(Side::Read) => " (read)",
        Some(Side::Write) => " (write)",
        None => "",
    };
    let waiters = object.waiters.iter().map(|waiter| format!("{}{}", waiter.lwp, side(waiter.side)));
    let waiters = waiters.chain(object.waiting_tasks.iter().map(|it| task(it) + side(it.side)));
    let kind = match object.evidence {
        Evidence::Inferred => Cell::styled(format!("{} (inferred)", what(object)), FAIR),
        _ => Cell::from(what(object)),
    };
    let held = match listed(holders.collect()) {
        Some(text) => Cell::from(text),
        None if object.state.is_held() => Cell::styled("unknown", FAIR),
        None => dash(),
    };
    vec![
        Cell::from(object.address.to_string()),
        kind,
        Cell::from(state(object)),
        held,
        listed(waiters.collect()).map_or_else(dash, Cell::from),
        object.name.as_deref().map_or_else(dash, |name| Cell::from(safe(name))),
    ]
}
