//! Kernel facts, read a little ahead of a client that walks through all threads.
//!
//! Reading `/proc` for one thread costs as much for the opening of files as for the facts, and several
//! threads can be read side by side. So when a client asks for one thread after the other, in the order
//! an iteration gave, those that come next are read with it. Nothing older than [`FRESH`] is used, and
//! whatever acts on a thread forgets all of it. Only the kernel's facts are kept this way: memory is
//! read anew in every call.

use crate::session::lock;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use threadglass::Lwp;
use threadglass::internals::Inspector;
use threadglass::target::{LwpFacts, Target};

/// For how long facts that were read ahead may be used.
const FRESH: Duration = Duration::from_millis(50);
/// After so many questions in a row, reading ahead begins.
const STREAK: usize = 3;
/// Most threads read ahead from `/proc`: more would be stale before they are asked for.
const MOST: usize = 1024;

/// Facts read ahead.
#[derive(Default)]
pub(crate) struct FactCache {
    read_at: Option<Instant>,
    /// Facts of the threads from place `from` on, in order; `None` for those that are used or gone.
    ahead: Vec<Option<LwpFacts>>,
    from: usize,
    /// Threads in the order of the last iteration, and the place of each.
    order: Vec<Lwp>,
    places: HashMap<Lwp, usize>,
    last: usize,
    streak: usize,
}

impl FactCache {
    /// Remembers the order in which a client will probably ask.
    pub(crate) fn set_order(&mut self, order: Vec<Lwp>) {
        self.places = order.iter().enumerate().map(|(place, lwp)| (*lwp, place)).collect();
        self.order = order;
        self.ahead.clear();
        (self.last, self.streak) = (usize::MAX, 0);
    }

    /// Forgets everything: something in the target was changed.
    pub(crate) fn forget(&mut self) {
        self.ahead.clear();
    }

    /// The facts of `lwp` if they were read ahead, and else the threads to read now: `lwp`, and after it
    /// those that come next. `in_bulk` says that reading all of them costs little more than a few.
    pub(crate) fn take(&mut self, lwp: Lwp, in_bulk: impl FnOnce() -> bool) -> Result<LwpFacts, Vec<Lwp>> {
        if self.read_at.is_none_or(|when| when.elapsed() > FRESH) {
            self.ahead.clear();
        }
        let Some(place) = self.places.get(&lwp).copied() else { return Err(vec![lwp]) };
        self.streak = if place == self.last.wrapping_add(1) { self.streak + 1 } else { 0 };
        self.last = place;
        let slot = place.checked_sub(self.from).and_then(|index| self.ahead.get_mut(index));
        if let Some(facts) = slot.and_then(Option::take) {
            return Ok(facts);
        }
        let ahead = match self.streak.checked_sub(STREAK) {
            None => 1,
            Some(_) if in_bulk() => usize::MAX,
            Some(more) => (16 << more.min(12)).min(MOST),
        };
        Err(self.order[place..].iter().take(ahead).copied().collect())
    }

    /// Stores facts that were read ahead, of the threads that follow `lwp`.
    pub(crate) fn store(&mut self, lwp: Lwp, ahead: Vec<Option<LwpFacts>>) {
        if let Some(place) = self.places.get(&lwp) {
            (self.from, self.ahead) = (place + 1, ahead);
            self.read_at = Some(Instant::now());
        }
    }
}

/// The facts of one thread of `target`.
pub(crate) fn of_thread(cache: &std::sync::Mutex<FactCache>, target: &dyn Target, lwp: Lwp) -> Option<LwpFacts> {
    let wanted = match lock(cache).take(lwp, || target.gives_facts_in_bulk()) {
        Ok(facts) => return Some(facts),
        Err(wanted) => wanted,
    };
    let mut facts = Inspector::facts(target, &wanted).into_iter();
    let first = facts.next().flatten();
    if wanted.len() > 1 {
        lock(cache).store(lwp, facts.collect());
    }
    first
}
