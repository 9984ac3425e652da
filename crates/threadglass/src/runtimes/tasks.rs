//! Runtimes that run tasks of their own on threads: the contract, and the list of those that are read.

use super::go;
use crate::model::{Gap, SyncObject, Task, TaskRuntimeInfo};
use crate::target::Target;

/// Those that are known.
static ALL: [&dyn TaskRuntime; 1] = [&go::Goroutines];

/// The word of all runtimes for a task that its thread has taken into a system call.
pub(crate) const IN_SYSTEM_CALL: &str = "syscall";

/// How much of the tasks is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskScope {
    /// Which there are, with state and reason of the wait.
    List,
    /// What each waits for, too.
    Waits,
    /// Their stacks as well.
    Stacks,
    /// Locks that they hold besides, as far as those can be found.
    Held,
}

/// A runtime with tasks.
pub(crate) trait TaskRuntime: Sync {
    /// The tasks of `target`; `None` if it does not have this runtime.
    fn read(&self, target: &dyn Target, scope: TaskScope) -> Option<SeenTasks>;
}

/// The tasks of one runtime.
#[derive(Debug)]
pub(crate) struct SeenTasks {
    pub(crate) info: TaskRuntimeInfo,
    pub(crate) tasks: Vec<Task>,
    /// What they wait for or hold.
    pub(crate) objects: Vec<SyncObject>,
    pub(crate) gaps: Vec<Gap>,
}

/// The tasks of all runtimes of `target`.
pub(crate) fn read(target: &dyn Target, scope: TaskScope) -> Vec<SeenTasks> {
    ALL.iter().filter_map(|runtime| runtime.read(target, scope)).collect()
}
