//! One look at a target: its threads, what they wait for, who holds it, and what is wrong.

pub mod doctor;
pub mod guards;
mod handle;
mod stacks;
pub mod threads;
pub mod waits;

pub use handle::{Look, Names, Scope};
pub use stacks::{Moving, Stacks, walk_bytes};
pub use waits::{explain, look_at};

use crate::model::Snapshot;
use crate::target::{Target, TargetError};

/// Looks at `target` without stopping it: at its threads, and at what `scope` says. `names` says what is named.
pub fn look(target: &dyn Target, scope: Scope, names: Names) -> Result<Snapshot, TargetError> {
    Look::new(target).take(scope, names)
}
