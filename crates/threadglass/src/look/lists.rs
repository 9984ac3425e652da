//! What lists of a target's threads and locks are made of, for whoever shows them or keeps them.

use super::{Look, Names, Scope, TaskScope, add_other_ends};
use crate::model::Snapshot;
use crate::target::{Target, TargetError};

/// How much a list of threads tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadList {
    /// The tasks that runtimes of their own run on the threads, as far as this.
    pub tasks: Option<TaskScope>,
    /// The stacks of threads that stand still.
    pub stacks: bool,
}

/// The threads of a target and what each waits for. `choose` takes away those that are not wanted, before what costs more is
/// read of the rest.
pub fn list_threads(
    target: &dyn Target,
    list: ThreadList,
    choose: impl FnOnce(&mut Snapshot),
) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
    let look = Look::new(target);
    let mut snapshot = look.take(Scope::Waited, Names::All)?;
    if let Some(scope) = list.tasks {
        look.add_tasks(&mut snapshot, scope);
    }
    choose(&mut snapshot);
    add_other_ends(target, &mut snapshot);
    if list.stacks {
        look.add_stacks(&mut snapshot);
    }
    Ok(snapshot)
}

/// The locks of a target: those that threads wait for or hold, or all of them.
pub fn list_locks(target: &dyn Target, scope: Scope) -> Result<Snapshot, TargetError> {
    let _look = target.limits().begin();
    let look = Look::new(target);
    let mut snapshot = look.take(scope, Names::Findings)?;
    look.add_tasks(&mut snapshot, TaskScope::Held);
    Ok(snapshot)
}
