//! What plans for objects of all runtimes are made of.

use crate::Lwp;
use crate::model::{HolderStatus, SetPlan, SyncObject, WordWrite};

/// A plan for `object` that writes nothing yet.
pub(crate) fn empty_plan(object: &SyncObject, bytes: &[u8], value: i32, becomes: impl Into<String>) -> SetPlan {
    SetPlan {
        address: object.address,
        kind: object.kind,
        family: object.family,
        value,
        before: bytes.to_vec(),
        words: Vec::new(),
        wakes: false,
        kick: Vec::new(),
        becomes: becomes.into(),
        consequences: Vec::new(),
    }
}

impl SetPlan {
    /// Adds a word, unless it has that value.
    pub(super) fn word(&mut self, field: &'static str, at: u64, old: u32, new: u32) {
        if old != new {
            self.words.push(WordWrite { address: self.address.offset(at), field, old, new });
        }
    }

    /// Wakes everybody who waits for `object`.
    pub(super) fn kick_all(&mut self, object: &SyncObject) {
        self.wakes = true;
        self.kick = object.waiters.iter().map(|waiter| waiter.lwp).collect();
    }

    pub(super) fn warn(&mut self, sentence: impl Into<String>) {
        self.consequences.push(sentence.into());
    }
}

/// Those who hold it and live, as words: `the holder (lwp 12)`.
pub(super) fn living_holders(object: &SyncObject) -> Option<String> {
    let lwps: Vec<Lwp> = object
        .holders
        .iter()
        .filter(|holder| !matches!(holder.status, HolderStatus::Gone | HolderStatus::ForkParent))
        .filter_map(|holder| holder.lwp)
        .collect();
    match lwps.as_slice() {
        [] => None,
        [one] => Some(format!("the holder (lwp {one})")),
        many => Some(format!("the {} holders", many.len())),
    }
}

/// What is true of whatever a lock guards.
pub(super) const HALF_WRITTEN: &str =
    "the data that the lock protects may be half-written: the holder had not finished";
