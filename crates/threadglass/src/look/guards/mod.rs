//! Who may hold a lock that does not say so: threads that would release it if they went on, or if an exception went
//! through them. They are always *inferred* (docs/inference.md).
//!
//! The frames of a thread are undone, and from each the code is followed as the thread would follow it, with the
//! registers and memory that it has: nothing is run, and nothing is written to the target.

mod calls;
mod code;
mod effect;
mod explore;
mod frames;
mod lsda;
mod machine;
mod pages;
mod recover;
mod relevance;
mod rounds;
mod shape;
mod standing;
mod task_ways;
mod tasks;
mod way_here;

pub(crate) use calls::CallReader;
pub use frames::follow_bytes;
pub(crate) use frames::{Argument, after_call, argument_of_call, will_take};
pub use lsda::landing_pad;
pub(crate) use rounds::{Round, RunningThread, STEPS, round};
pub(crate) use tasks::{FollowedTask, TaskClue, TaskReason, WantedUse, follow_tasks};

use crate::look::Look;
use crate::model::{Family, SyncKind};
use crate::symbols::Symbolizer;
use crate::{Lwp, RemoteAddr};
use std::collections::HashMap;

/// A thread that stands still. The caller sees to it that it still did when the suspects were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestingThread {
    /// Its LWP.
    pub lwp: Lwp,
    /// Its stack pointer.
    pub sp: RemoteAddr,
    /// Where it is in its code.
    pub pc: RemoteAddr,
    /// One past the highest address of its stack.
    pub stack_base: Option<RemoteAddr>,
    /// Where its start routine begins.
    pub start: Option<RemoteAddr>,
    /// What it waits for: taking that will come first.
    pub waits_on: Option<RemoteAddr>,
    /// The word that its system call waits on, if that is a futex call: the kernel tells it, and with it
    /// a register that nothing else tells of a thread that was not stopped.
    pub futex: Option<RemoteAddr>,
}

/// A lock whose holders are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedLock {
    /// Where it begins.
    pub address: RemoteAddr,
    /// Bytes it takes.
    pub size: u64,
    /// What it is.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
}

/// A thread that may hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The lock.
    pub object: RemoteAddr,
    /// The thread.
    pub lwp: Lwp,
    /// Why, in words.
    pub why: String,
}

/// Those of `resting` that may hold one of `wanted`. Of an exclusive lock only those with the best reason
/// are given: if these are several, it is not known which.
pub fn suspects(look: &Look<'_>, wanted: &[WantedLock], resting: &[RestingThread]) -> Vec<Suspect> {
    let mut found = frames::search(look, wanted, resting);
    keep_the_best(&mut found, wanted);
    let symbols = look.symbolizer();
    let mut names = HashMap::new();
    let suspects = found.into_iter().map(|clue| {
        let function = names.entry(clue.frame).or_insert_with(|| function_of(&symbols, clue.frame));
        let handler = clue.handler.map(|frame| function_of(&symbols, frame));
        let is_once = wanted.iter().any(|lock| lock.address == clue.object && lock.kind == SyncKind::Once);
        let why = match clue.grade {
            Grade::Takes | Grade::Releases | Grade::TakesAndReleases if is_once => format!("{function} executes it"),
            Grade::Takes => format!("{function} took it, and was not seen to release it"),
            Grade::Releases => format!("{function} will release it"),
            Grade::TakesAndReleases => format!("{function} took it and will release it"),
            Grade::Unwinds => format!("{function} has a guard of it"),
        };
        let why = match handler {
            Some(handler) => format!("{why} when the signal handler {handler} has returned"),
            None => why,
        };
        Suspect { object: clue.object, lwp: clue.lwp, why }
    });
    suspects.collect()
}

/// How strong the reason is for a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Its code took the lock, whichever way it came.
    Takes,
    /// Its code goes on to release the lock.
    Releases,
    /// And the function that does took it.
    TakesAndReleases,
    /// A guard of it lives in a frame: an exception would release it.
    Unwinds,
}

/// A suspicion before it is put into words.
#[derive(Clone, Copy, Debug)]
struct Clue {
    object: RemoteAddr,
    lwp: Lwp,
    grade: Grade,
    /// Where the frame that gives the thread away goes on.
    frame: RemoteAddr,
    /// Where the signal handler is that has interrupted this frame.
    handler: Option<RemoteAddr>,
}

/// An exclusive lock has one holder: weaker reasons than the best are mistakes.
fn keep_the_best(found: &mut Vec<Clue>, wanted: &[WantedLock]) {
    let mut best: HashMap<RemoteAddr, Grade> = HashMap::new();
    for clue in found.iter() {
        let grade = best.entry(clue.object).or_insert(clue.grade);
        *grade = clue.grade.max(*grade);
    }
    let exclusive = |object| wanted.iter().any(|lock| lock.address == object && lock.kind == SyncKind::Mutex);
    found.retain(|clue| !exclusive(clue.object) || best.get(&clue.object) == Some(&clue.grade));
}

/// The function that a frame belongs to. Where in it does not matter; where in a module without symbols does.
fn function_of(symbols: &Symbolizer<'_>, frame: RemoteAddr) -> String {
    let at = RemoteAddr(frame.0.wrapping_sub(1));
    let function = symbols.enclosing_function(at).or_else(|| symbols.function_at(at));
    function.unwrap_or_else(|| frame.to_string())
}
