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
mod types;
mod vtables;
mod waits;

use super::tasks::{SeenTasks, TaskContext, TaskRuntime};

/// What `threads` calls it.
pub(super) const NAME: &str = "tokio";

/// Tasks of tokio.
pub(crate) struct Tokio;

impl TaskRuntime for Tokio {
    fn read<'t>(&self, context: &TaskContext<'t>) -> Option<SeenTasks<'t>> {
        reader::read(context)
    }
}
