//! Who may hold a lock that does not say so.
//!
//! **What you give:** locks that record no holder (those of Rust's standard library, readers of a rwlock,
//! semaphores) and threads that stand still. **What you get:** threads that would release such a lock if
//! they went on, or if an exception went through them: candidates, to be called *inferred*. Several holders
//! of one lock are normal, and a lock may have none that can be found.
//!
//! A pointer to a lock on a stack says little: whoever may want the lock has one. What tells a holder is
//! what its code does next. So the frames of a thread are undone, and from each the code is followed as
//! the thread would follow it, with the registers and memory that it has: nothing is run, and nothing is
//! written to the target. A thread that releases a lock without taking it first must have it. What C++
//! and Rust do for exceptions ("landing pads") is followed likewise, and says exactly which guards live.

mod addresses;
mod code;
mod effect;
mod explore;
mod frames;
mod lsda;
mod machine;
mod pages;
mod recover;
mod relevance;
mod shape;

pub use lsda::{MAX_LSDA, landing_pad};

use crate::look::Look;
use crate::model::{Family, SyncKind};
use crate::symbols::Symbolizer;
use crate::target::Target;
use crate::unwind::Space;
use crate::{Lwp, RemoteAddr};
use std::collections::HashMap;

/// A thread that stands still. The caller sees to it that it still did when the suspects were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stander {
    /// Which.
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
pub struct Wanted {
    /// Where it begins.
    pub address: RemoteAddr,
    /// Bytes it takes.
    pub size: u64,
    /// What it is.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
}

/// How strong the reason is for a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Its code goes on to release the lock.
    Releases,
    /// And the function that does took it.
    TakesAndReleases,
    /// A guard of it lives in a frame: an exception would release it.
    Unwinds,
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
    /// How strong that is.
    pub grade: Grade,
    /// Of the frame that gives it away: where it goes on.
    pub frame: Option<RemoteAddr>,
}

/// Those of `standers` that may hold one of `wanted`. Of an exclusive lock only those with the best reason
/// are given: if these are several, it is not known which.
pub fn suspects(look: &Look<'_>, wanted: &[Wanted], standers: &[Stander]) -> Vec<Suspect> {
    let mut found = frames::search(look.target, &look.space, wanted, standers);
    keep_the_best(&mut found, wanted);
    let mut names = Names { symbols: look.symbolizer(), known: HashMap::new() };
    let suspects = found.into_iter().map(|clue| {
        let function = names.function(clue.frame);
        let why = match clue.grade {
            Grade::Releases => format!("{function} goes on to release it"),
            Grade::TakesAndReleases => format!("{function} took it and goes on to release it"),
            Grade::Unwinds => format!("a guard of it lives in {function}"),
        };
        Suspect { object: clue.object, lwp: clue.lwp, why, grade: clue.grade, frame: Some(clue.frame) }
    });
    suspects.collect()
}

/// The first argument of the call by which a blocked thread's program entered the C library, as far as its code
/// and registers tell.
pub(crate) fn first_argument(
    target: &dyn Target,
    space: &Space<'_>,
    lwp: Lwp,
    sp: RemoteAddr,
    pc: RemoteAddr,
) -> Option<RemoteAddr> {
    let stander = Stander { lwp, sp, pc, stack_base: None, start: None, waits_on: None, futex: None };
    frames::first_argument(target, space, &stander).map(RemoteAddr)
}

/// Follows the code at `pc` in plain memory, for tests and fuzzing; whether it releases `lock`.
pub fn follow_bytes(space: &Space<'_>, pc: RemoteAddr, sp: RemoteAddr, lock: &Wanted) -> bool {
    frames::follow(space, pc, sp, lock)
}

/// A suspicion before it is put into words.
#[derive(Clone, Copy, Debug)]
struct Clue {
    object: RemoteAddr,
    lwp: Lwp,
    grade: Grade,
    frame: RemoteAddr,
}

/// An exclusive lock has one holder: weaker reasons than the best are mistakes.
fn keep_the_best(found: &mut Vec<Clue>, wanted: &[Wanted]) {
    let mut best: HashMap<RemoteAddr, Grade> = HashMap::new();
    for clue in found.iter() {
        let grade = best.entry(clue.object).or_insert(clue.grade);
        *grade = clue.grade.max(*grade);
    }
    let exclusive = |object| wanted.iter().any(|lock| lock.address == object && lock.kind == SyncKind::Mutex);
    found.retain(|clue| !exclusive(clue.object) || best.get(&clue.object) == Some(&clue.grade));
}

struct Names<'a> {
    symbols: Symbolizer<'a>,
    known: HashMap<RemoteAddr, String>,
}

impl Names<'_> {
    /// The function that a frame belongs to.
    fn function(&mut self, frame: RemoteAddr) -> &str {
        let Self { symbols, known } = self;
        known.entry(frame).or_insert_with(|| {
            let name = symbols.function_at(RemoteAddr(frame.0.wrapping_sub(1)));
            let name = name.unwrap_or_else(|| frame.to_string());
            // Where in the function does not matter; where in a module without symbols does.
            match name.rsplit_once("+0x") {
                Some((function, _)) if !function.contains('.') && function.contains(|c: char| !c.is_ascii_digit()) => {
                    function.to_owned()
                }
                _ => name,
            }
        })
    }
}
