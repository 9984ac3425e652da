//! Runtimes that run tasks of their own on threads: the contract, and the list of those that are read.

use super::{go, tokio};
use crate::model::{Gap, SyncObject, Task, TaskRuntimeInfo};
use crate::symbols::Objects;
use crate::target::Target;
use crate::unwind::Space;
use crate::{Lwp, RemoteAddr};

/// Those that are known.
static ALL: &[&dyn TaskRuntime] = &[&go::Goroutines, &tokio::Tokio];

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

    /// Whether `target` has this runtime, if its program alone tells that.
    fn is_in_program(&self, _target: &dyn Target) -> Option<bool> {
        None
    }

    /// The same for a runtime whose tasks are found from threads, or by what objects have in them.
    fn read_in(&self, context: &TaskContext<'_>) -> Option<SeenTasks> {
        self.read(context.target, context.scope)
    }
}

/// What tasks are found from.
pub(crate) struct TaskContext<'c> {
    pub(crate) target: &'c dyn Target,
    pub(crate) objects: &'c Objects<'c>,
    pub(crate) space: &'c Space<'c>,
    pub(crate) threads: &'c [ThreadPlace],
    pub(crate) scope: TaskScope,
}

/// Where a thread's stack and variables are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadPlace {
    pub(crate) lwp: Lwp,
    /// Where its stack stands, if that is known.
    pub(crate) sp: Option<RemoteAddr>,
    /// Its descriptor.
    pub(crate) descriptor: Option<RemoteAddr>,
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

/// Runtimes in programs whose other threads work, too, and may wake a task.
const AMONG_THREADS: [&str; 1] = [tokio::NAME];

/// Whether a task of `runtime` may be woken by a thread that runs no task.
pub(crate) fn is_among_threads(runtime: &str) -> bool {
    AMONG_THREADS.contains(&runtime)
}

/// Whether a target has a runtime with tasks. `context` is asked for where its program alone does not tell.
pub(crate) fn has_any(target: &dyn Target, context: &dyn Fn(&dyn TaskRuntime) -> bool) -> bool {
    ALL.iter().any(|runtime| runtime.is_in_program(target).unwrap_or_else(|| context(*runtime)))
}

/// The tasks of all runtimes of a target.
pub(crate) fn read(context: &TaskContext<'_>) -> Vec<SeenTasks> {
    ALL.iter().filter_map(|runtime| runtime.read_in(context)).collect()
}
