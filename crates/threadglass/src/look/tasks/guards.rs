//! Tasks that hold, while they wait, a lock that threads block on.

use super::stuck::{Stuck, called, place, waiting_at};
use crate::RemoteAddr;
use crate::model::{Certainty, Evidence, Finding, FindingKind, Task, TaskHolds, ThreadState};
use std::collections::BTreeSet;

/// Places of the program that are told.
const MAX_PLACES: usize = 16;

/// Guards that are held across an await; each place of the program once, and none that was `told` already.
pub(super) fn across_awaits(stuck: &Stuck<'_>, told: &BTreeSet<RemoteAddr>) -> Vec<Finding> {
    let mut found: Vec<(String, Finding, usize)> = Vec::new();
    // Of several that have a guard of one lock all but one have given it away.
    let is_sure = |held: &TaskHolds| held.evidence < Evidence::Inferred;
    let is_guard = |held: &&TaskHolds| held.blocks_threads && is_sure(held) && !told.contains(&held.address);
    let is_waiting = |task: &&Task| task.state == ThreadState::Sleep;
    for task in stuck.snapshot.tasks.iter().filter(is_waiting) {
        let Some(held) = task.holds.iter().find(is_guard) else { continue };
        let key = format!("{:?} {:?}", task.start_function, place(task));
        if let Some((.., count)) = found.iter_mut().find(|(other, ..)| *other == key) {
            *count += 1;
        } else if found.len() < MAX_PLACES {
            let text = format!(
                "{} has a guard of the {} {} while it waits ({}): unless it has dropped it by hand, a thread that wants the \
                 lock blocks, and polls nothing",
                called(task),
                held.kind.word(),
                held.address,
                waiting_at(task)
            );
            let finding = stuck.finding(FindingKind::GuardAcrossAwait, Certainty::Likely, Vec::new(), text);
            found.push((key, Finding { objects: vec![held.address], tasks: vec![task.id], ..finding }, 1));
        }
    }
    let more = |(_, finding, count): (String, Finding, usize)| match count {
        1 => finding,
        count => Finding { text: format!("{}; so do {} more tasks there", finding.text, count - 1), ..finding },
    };
    found.into_iter().map(more).collect()
}
