//! Leaving out what comes from the memory of the process.
//!
//! Answers have little of that: no stack, no heap. What they have is the words of locks, which are the answer; values of
//! thread-specific data; labels that a program gives its tasks; and paths that calls were given, which are not read at all.

use crate::limits::Limits;
use crate::model::Snapshot;

/// Why something is not there.
pub(super) const WHY: &str = "the snapshot was taken without what is in the memory of the process";

/// Before anything is looked at.
pub(super) fn begin(limits: &Limits) {
    limits.leave_out_texts();
}

pub(super) fn redact(snapshot: &mut Snapshot) {
    for task in &mut snapshot.tasks {
        task.labels.clear();
    }
}
