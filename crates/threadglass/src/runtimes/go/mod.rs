//! Go: goroutines with their states, stacks and waits, read from the memory of a program that goes on running.
//!
//! Go programs describe themselves: the table of functions is in each of them, and the list of goroutines is made for
//! readers without locks. What only a release knows is in [`offsets`].

mod build_info;
mod code;
mod described;
mod follow;
mod functions;
mod goroutines;
mod labels;
mod locate;
mod objects;
mod offsets;
mod program;
mod queues;
mod reader;
mod stacks;
mod waits;

pub(super) use locate::is_go;

use super::tasks::{CopiedStack, SeenTasks, TaskContext, TaskRuntime};
#[cfg(feature = "internals")]
use crate::RemoteAddr;
#[cfg(feature = "internals")]
use crate::memory::Memory;
use crate::model::{SharedFrames, StackEnd};
use crate::target::Target;

/// Goroutines as tasks.
pub(crate) struct Goroutines;

impl TaskRuntime for Goroutines {
    fn name(&self) -> &'static str {
        reader::GO
    }

    fn is_in_program(&self, target: &dyn Target) -> Option<bool> {
        Some(locate::program(target).is_some_and(|program| is_go(target, program)))
    }

    fn read<'t>(&self, context: &TaskContext<'t>) -> Option<SeenTasks<'t>> {
        let program = locate::program(context.target)?;
        let located = locate::locate(context.target, program)?;
        Some(reader::read(context, program, located))
    }

    fn running(&self, context: &TaskContext<'_>, copied: &[CopiedStack]) -> Vec<Option<(SharedFrames, StackEnd)>> {
        reader::running(context, copied).unwrap_or_else(|| vec![None; copied.len()])
    }
}

/// Goroutines as fuzz targets read them: the id of each, and the program counters of its stack where that is whole. The function
/// table of the program is at `table`, what leads to its parts at `module`, and variables of the runtime are `symbols`.
#[cfg(feature = "internals")]
pub(super) fn read_of_bytes(
    memory: &dyn Memory,
    table: RemoteAddr,
    module: RemoteAddr,
    symbols: &[(&str, RemoteAddr)],
    release: Option<u32>,
) -> Option<Vec<(u64, Option<Vec<u64>>)>> {
    let module = locate::module_at(memory, module, table, release)?;
    let symbols = symbols.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
    let located = locate::Located { version: None, release, module, symbols };
    let program = program::Program::learn(memory, &located, || None).ok()?;
    let all = goroutines::read(memory, &program.layout, &program.addresses);
    let mut stacks = stacks::Stacks::new(memory, &program.functions, None);
    let walked = stacks.walk(&all);
    let stack = |walked: &stacks::Walked| match walked {
        stacks::Walked::Whole(stack) => Some(*stack),
        _ => None,
    };
    let frames: Vec<_> = walked.iter().map(|walked| stack(walked).map(|id| (id, stacks.frames(id)))).collect();
    let waiting: Vec<_> = all
        .iter()
        .zip(&frames)
        .map(|(goroutine, frames)| waits::Waiting {
            is_waiting: goroutine.status.is_waiting(),
            goroutine,
            reason: program.reason(goroutine).map_or("", |reason| reason),
            stack: frames.as_ref().map(|(id, frames)| (*id, &**frames)),
        })
        .collect();
    for object in waits::find(&program, &waiting).iter().flat_map(|waits| &waits.objects) {
        let bytes = memory.read_up_to(object.address, 128).unwrap_or_default();
        objects::decode(object.kind, &bytes, &program.layout);
    }
    let pcs = |id| stacks.places(id).into_iter().map(|(pc, _)| pc).collect();
    Some(all.iter().zip(&walked).map(|(goroutine, walked)| (goroutine.id, stack(walked).map(pcs))).collect())
}
