//! Go: goroutines with their states, stacks and waits, read from the memory of a program that goes on running.
//!
//! Go programs describe themselves: the table of functions is in each of them, and the list of goroutines is made for
//! readers without locks. What only a release knows is in [`offsets`].

mod build_info;
mod code;
mod functions;
mod goroutines;
mod labels;
mod locate;
mod objects;
mod offsets;
mod program;
mod queues;
mod reader;
mod records;
mod stacks;
mod waits;

pub(super) use locate::is_go;

use super::tasks::{SeenTasks, TaskRuntime, TaskScope};
use crate::target::Target;

/// Goroutines as tasks.
pub(crate) struct Goroutines;

impl TaskRuntime for Goroutines {
    fn is_in_program(&self, target: &dyn Target) -> Option<bool> {
        Some(locate::program(target).is_some_and(|program| is_go(target, program)))
    }

    fn read(&self, target: &dyn Target, scope: TaskScope) -> Option<SeenTasks> {
        let program = locate::program(target)?;
        let located = locate::locate(target, program)?;
        Some(reader::read(target, program.name(), located, scope))
    }
}
