//! Runtimes that run tasks of their own on threads: the contract, and the list of those that are read.

use super::{Effect, go, tokio};
use crate::model::{Gap, SharedFrames, StackEnd, SyncKind, SyncObject, Task, TaskRuntimeInfo};
use crate::symbols::Objects;
use crate::target::Target;
use crate::unwind::Space;
use crate::{Lwp, RemoteAddr};

/// Those that are known.
static ALL: &[&dyn TaskRuntime] = &[&go::Goroutines, &tokio::Tokio];

/// The word of all runtimes for a task that its thread has taken into a system call.
pub(crate) const IN_SYSTEM_CALL: &str = "syscall";

/// The word for what a thread waits for in `block_on` while it polls other tasks there.
pub(crate) const ROOT_OF_POLLS: &str = "polls tasks";

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
    /// What `threads` calls it.
    fn name(&self) -> &'static str;

    /// The tasks of a target; `None` if it does not have this runtime.
    fn read<'t>(&self, context: &TaskContext<'t>) -> Option<SeenTasks<'t>>;

    /// The stacks of tasks that ran when these parts of memory were copied, in the same order; `None` where one was not in its own
    /// code then.
    fn running(&self, _context: &TaskContext<'_>, copied: &[CopiedStack]) -> Vec<Option<(SharedFrames, StackEnd)>> {
        vec![None; copied.len()]
    }

    /// Whether `target` has this runtime, if its program alone tells that.
    fn is_in_program(&self, _target: &dyn Target) -> Option<bool> {
        None
    }
}

/// The stack of a task that ran, as it was while its thread stood still.
#[derive(Clone, Debug)]
pub(crate) struct CopiedStack {
    pub(crate) runtime: &'static str,
    /// The task, and where its runtime keeps it.
    pub(crate) id: u64,
    pub(crate) address: RemoteAddr,
    pub(crate) pc: RemoteAddr,
    pub(crate) sp: RemoteAddr,
    /// From the stack pointer up.
    pub(crate) bytes: Vec<u8>,
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
pub(crate) struct SeenTasks<'t> {
    pub(crate) info: TaskRuntimeInfo,
    pub(crate) tasks: Vec<Task>,
    /// What they wait for or hold.
    pub(crate) objects: Vec<SyncObject>,
    pub(crate) gaps: Vec<Gap>,
    /// The crates of other executors whose code threads are in, if all stacks were seen.
    pub(crate) executors: Option<Vec<&'static str>>,
    /// What following their code needs, of a runtime whose locks tell nobody who holds them.
    pub(crate) code: Option<Box<dyn TaskCode + 't>>,
}

/// Runtimes in programs whose other threads work, too, and may wake a task.
const AMONG_THREADS: [&str; 1] = [tokio::NAME];

/// Whether a task of `runtime` may be woken by a thread that runs no task.
pub(crate) fn is_among_threads(runtime: &str) -> bool {
    AMONG_THREADS.contains(&runtime)
}

/// Whether a target has a runtime with tasks of those that `counts` accepts by name. `context` is asked for where its program
/// alone does not tell.
pub(crate) fn has_any(
    target: &dyn Target,
    counts: &dyn Fn(&str) -> bool,
    context: &dyn Fn(&dyn TaskRuntime) -> bool,
) -> bool {
    let mut wanted = ALL.iter().filter(|runtime| counts(runtime.name()));
    wanted.any(|runtime| runtime.is_in_program(target).unwrap_or_else(|| context(*runtime)))
}

/// Whether the program of `target` was made with a runtime of tasks that needs no C library. Without one, its threads are the
/// runtime's own, and have neither ids nor locks of libc.
pub(crate) fn needs_no_libc(target: &dyn Target) -> bool {
    ALL.iter().any(|runtime| runtime.is_in_program(target) == Some(true))
}

/// The code of tasks, for who follows it from where they stand. All registers but a few are lost at each call there.
pub(crate) trait TaskCode {
    /// Begin and end of the function around `pc`.
    fn function(&self, pc: u64) -> Option<(u64, u64)>;

    /// What a call of the function that begins at `entry` means.
    fn call(&self, entry: u64) -> TaskCall;

    /// What adding the number to the word at this place of an object, which has so many bytes, does to it.
    fn added(&self, at: u64, size: u8, by: i64) -> Option<(TaskUse, Effect)>;

    /// What exchanging the word at the beginning of an object, which has so many bytes, for another one does to it.
    fn exchanged(&self, size: u8, from: u64, to: u64) -> Option<(TaskUse, Effect)>;

    /// Where each of `tasks` stands, of those that stand still.
    fn stands(&self, tasks: &[&Task]) -> Vec<Option<TaskStand>>;

    /// Where the lock is that guards an object, if that is what its waiters wait for.
    fn lock_of(&self, object: RemoteAddr, kind: SyncKind) -> RemoteAddr;
}

/// What a call means in the code of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskCall {
    /// What its code does.
    Code,
    /// Nothing that matters, or that is not looked at.
    Plain,
    /// It does not come back.
    Never,
    /// Something is done to the object that begins so many bytes before its first argument.
    Acts(TaskUse, Effect, u64),
    /// It takes a value out of the channel that is its second argument.
    ReceivesFromSecond,
    /// The count of its first argument changes by its second one.
    Counts,
    /// One of several channels is used: an array of pairs that begin with a channel, the fourth argument counts those that
    /// are sent to, the fifth one those that are received from.
    Chooses,
    /// Another task begins with its first argument.
    Begins,
    /// It gives new memory.
    Makes,
    /// What the function has put off is done, whatever that is.
    EndsDeferred,
}

/// How an object is used by tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TaskUse {
    /// A lock, by one.
    Exclusive,
    /// A lock, by readers.
    Shared,
    /// A count of tasks that others wait for.
    Group,
    /// A channel.
    Send,
    Receive,
    Close,
    /// A condition variable or a semaphore.
    Wake,
}

/// Where a task stands.
#[derive(Clone, Debug)]
pub(crate) struct TaskStand {
    /// What one register has everywhere: the task.
    pub(crate) own: u64,
    /// The word that functions compare the stack pointer with, to see whether there is room.
    pub(crate) limit: u64,
    /// From the innermost one on.
    pub(crate) frames: Vec<TaskFrame>,
}

/// A frame of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskFrame {
    /// Where it goes on, with the stack pointer that it has then.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// The stack pointer of its caller.
    pub(crate) top: u64,
    /// Whether it is of the runtime, or of the wait itself: nothing is followed from there.
    pub(crate) is_wait: bool,
    /// Functions that it calls at its end, the last one first: where each is kept.
    pub(crate) deferred: Vec<u64>,
}

/// The tasks of all runtimes of a target.
pub(crate) fn read<'t>(context: &TaskContext<'t>) -> Vec<SeenTasks<'t>> {
    ALL.iter().filter_map(|runtime| runtime.read(context)).collect()
}

/// The stacks of tasks that ran, in the order of what was copied of them.
pub(crate) fn running(context: &TaskContext<'_>, copied: &[CopiedStack]) -> Vec<Option<(SharedFrames, StackEnd)>> {
    let mut found = vec![None; copied.len()];
    for runtime in ALL {
        for (known, more) in found.iter_mut().zip(runtime.running(context, copied)) {
            *known = known.take().or(more);
        }
    }
    found
}
