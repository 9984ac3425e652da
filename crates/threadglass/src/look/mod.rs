//! One look at a target: its threads, what they wait for, who holds it, and what is wrong.

mod doctor;
mod frames;
pub(crate) mod guards;
mod handle;
mod lists;
mod machine;
pub(crate) mod stacks;
mod tasks;
pub(crate) mod threads;
pub(crate) mod waits;
mod watch;

pub use crate::runtimes::TaskScope;
pub use doctor::check;
pub use frames::library_of;
pub(crate) use frames::own_frames;
pub use handle::{Look, Names, Scope};
pub use lists::{ThreadList, list_locks, list_threads};
pub use machine::{MachineOptions, machine};
pub(crate) use stacks::{Moving, Stacks};
pub use tasks::{is_of_library, name_of_task};
pub use threads::thread_data;
pub use waits::{USUAL_TIME, add_other_ends, explain, explain_for, explain_whole, look_at};
pub use watch::{WatchOptions, Watcher};

use crate::Lwp;
use crate::model::Snapshot;
use crate::target::{LwpFacts, Target, TargetError};

/// Looks at `target` without stopping it: at its threads, and at what `scope` says. `names` says what is named.
pub fn look(target: &dyn Target, scope: Scope, names: Names) -> Result<Snapshot, TargetError> {
    Look::new(target).take(scope, names)
}

/// What the kernel tells of `lwps` now, as far as they are still there.
fn facts_now<M: FromIterator<(Lwp, LwpFacts)>>(target: &dyn Target, lwps: &[Lwp]) -> M {
    target.facts(lwps).into_iter().flatten().map(|facts| (facts.lwp, facts)).collect()
}
