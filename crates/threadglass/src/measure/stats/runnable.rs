//! Tasks in statistics: how many there are, and how many could run and have no thread.

use crate::look::{Look, Names, Scope, TaskScope};
use crate::model::TaskRuntimeInfo;
use crate::target::{Live, Target};

/// Counts the tasks of a process, again and again.
pub(super) struct TaskMeter {
    /// Opened for this alone: its holder may outlive what it was made from.
    live: Live,
    runtimes: Vec<TaskRuntimeInfo>,
    /// When they were counted last, in nanoseconds.
    at: u64,
    /// Twice the integral of the number of those that could run and had no thread.
    waiting2: u128,
}

impl TaskMeter {
    /// For the process of `live`, at the time `now`; `None` if it has no tasks.
    pub(super) fn new(live: &Live, now: u64) -> Option<Self> {
        let own = Live::open(live.pid()).ok()?;
        live.check_identity().ok()?;
        if !Look::new(&own).has_tasks() {
            return None;
        }
        let mut meter = Self { live: own, runtimes: Vec::new(), at: now, waiting2: 0 };
        meter.runtimes = meter.count();
        Some(meter)
    }

    fn count(&self) -> Vec<TaskRuntimeInfo> {
        let _look = self.live.limits().begin();
        let look = Look::new(&self.live);
        let Ok(mut snapshot) = look.take(Scope::Threads, Names::None) else { return Vec::new() };
        look.add_tasks(&mut snapshot, TaskScope::List);
        snapshot.task_runtimes
    }

    /// Begins anew at the time `now`.
    pub(super) fn restart(&mut self, now: u64) {
        (self.at, self.waiting2) = (now, 0);
    }

    /// Counts them at the time `now`. Where that fails (the process has ended), the last count stands.
    pub(super) fn sample(&mut self, now: u64) {
        let before = self.runnable();
        let counted = self.count();
        if !counted.is_empty() {
            self.runtimes = counted;
        }
        let span = u128::from(now.saturating_sub(self.at));
        self.waiting2 += span * u128::from(before.saturating_add(self.runnable()));
        self.at = now;
    }

    /// The integral over time of the number of those that could run and had no thread.
    pub(super) fn waiting(&self) -> u128 {
        self.waiting2 / 2
    }

    fn runnable(&self) -> u64 {
        self.runtimes.iter().map(|runtime| runtime.runnable).sum()
    }

    /// How many there were when they were counted last.
    pub(super) fn number(&self) -> u64 {
        self.runtimes.iter().map(|runtime| runtime.running + runtime.runnable + runtime.waiting).sum()
    }

    /// How many may run at one time.
    pub(super) fn concurrency(&self) -> Option<u64> {
        self.runtimes.iter().map(|runtime| runtime.concurrency).reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
    }

    /// The runtimes that they are of.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.runtimes.iter().map(|runtime| runtime.name).collect()
    }
}

impl std::fmt::Debug for TaskMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskMeter").field("runtimes", &self.runtimes).finish_non_exhaustive()
    }
}
