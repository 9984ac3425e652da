//! tokio: tasks, what they await, and who polls them.
//!
//! Nothing is asked of the program: tasks are found by the shape of their tables of functions, from the pointers that
//! threads have. With debug information the future of each task is read, too.

mod future;
mod header;
mod lists;
mod names;
mod reader;
mod roots;
mod stacks;
mod types;
mod version;
mod vtables;
mod waits;

pub(crate) use version::other_executors;

use super::tasks::{SeenTasks, TaskContext, TaskRuntime, TaskScope};
use crate::target::Target;

/// What `threads` calls it.
pub(super) const NAME: &str = "tokio";

/// Tasks of tokio.
pub(crate) struct Tokio;

impl TaskRuntime for Tokio {
    /// Tasks are found from threads and objects.
    fn read(&self, _: &dyn Target, _: TaskScope) -> Option<SeenTasks> {
        None
    }

    fn read_in(&self, context: &TaskContext<'_>) -> Option<SeenTasks> {
        reader::read(context)
    }
}
