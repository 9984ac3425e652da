//! In place of `watch`, where the library is built without perf: running threads are not sampled.

use crate::look::{Look, Stacks};
use crate::model::Snapshot;

pub(super) struct RunningThreads;

impl RunningThreads {
    pub(super) fn watch(_look: &Look<'_>, _snapshot: &Snapshot) -> Self {
        Self
    }

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn collect(&mut self) {}

    /// The stacks of running threads are missing: their gap says so.
    pub(super) fn finish(self, _look: &Look<'_>, _snapshot: &mut Snapshot, _stacks: &mut Stacks<'_>) {}
}
