//! tokio: tasks, what they await, and who polls them.
//!
//! Nothing is asked of the program: tasks are found by the shape of their tables of functions, from the pointers that
//! threads have. With debug information the future of each task is read, too.

mod ends;
mod future;
mod header;
mod lists;
mod names;
mod objects;
mod reader;
mod roots;
mod stacks;
mod types;
mod version;
mod vtables;
mod waits;

pub(crate) use version::{executor_of, other_executors};

use super::tasks::{SeenTasks, TaskContext, TaskRuntime};
#[cfg(feature = "internals")]
use crate::{RemoteAddr, memory::Memory, proc::MapEntry};
#[cfg(feature = "internals")]
use std::collections::BTreeSet;

/// What `threads` calls it.
pub(super) const NAME: &str = "tokio";

/// Tasks of tokio.
pub(crate) struct Tokio;

impl TaskRuntime for Tokio {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Tasks are found from threads and objects.
    fn read<'t>(&self, context: &TaskContext<'t>) -> Option<SeenTasks<'t>> {
        reader::read(context)
    }
}

/// Tasks as fuzz targets read them: the id of each, where it is, and whether all lists were followed to their ends. Tables of
/// functions are in `constants`, their functions in `code`, everything else in `data`; `pointers` may lead to schedulers.
#[cfg(feature = "internals")]
pub(super) fn read_of_bytes(
    memory: &dyn Memory,
    constants: (RemoteAddr, &[u8]),
    code: std::ops::Range<u64>,
    data: std::ops::Range<u64>,
    pointers: &BTreeSet<u64>,
) -> (Vec<(u64, RemoteAddr)>, bool) {
    let is_code = |word: u64| code.contains(&word);
    let vtables = vtables::Vtables::of(vtables::tables_in(constants.0, constants.1, &is_code));
    let maps = [MapEntry {
        start: RemoteAddr(data.start),
        end: RemoteAddr(data.end),
        read: true,
        write: true,
        exec: false,
        shared: false,
        offset: 0,
        inode: 0,
        name: Vec::new(),
        deleted: false,
    }];
    let finder = lists::Finder { memory, maps: &maps, vtables: &vtables, is_over: &|| false };
    let found = finder.find(pointers);
    // What a panic would print, too.
    version::version_in(constants.1);
    (found.tasks.iter().map(|task| (task.id, task.at)).collect(), found.torn == 0 && !found.is_cut)
}
