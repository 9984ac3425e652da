//! What tells whether a thread has run between two moments.

use crate::Lwp;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// How often a thread has been on a CPU, and for how long. If nothing of it has grown, it has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counters {
    pub(super) lwp: Lwp,
    /// Times it got a CPU, and nanoseconds that it had one.
    pub(super) turns: Option<u64>,
    pub(super) run_ns: Option<u64>,
    /// For how long it has not been on a CPU, at least, in milliseconds.
    pub(super) idle_ms: Option<u64>,
}

impl Counters {
    /// Whether a thread has not run from `self` to `later`; `None` where that cannot be told.
    pub(super) fn stand_still(&self, later: &Self) -> Option<bool> {
        let (turns, run_ns) = (self.turns.zip(later.turns)?, self.run_ns.zip(later.run_ns)?);
        Some(turns.0 == turns.1 && run_ns.0 == run_ns.1)
    }
}

/// Those of all threads. A core tells of none.
pub(super) fn read(target: &dyn Target) -> Vec<Counters> {
    let mut lwps = target.lwps().unwrap_or_default();
    lwps.sort_unstable();
    let idle = target.idle_ms(&lwps);
    let of = |(lwp, idle_ms): (Lwp, Option<u64>)| {
        let sched = target.sched_counters(lwp);
        Counters { lwp, turns: sched.map(|it| it.timeslices), run_ns: sched.map(|it| it.run_ns), idle_ms }
    };
    lwps.into_iter().zip(idle).map(of).collect()
}
