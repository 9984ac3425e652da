//! What a thread, a lock and a wait are, one folder for each system that makes them.
//!
//! `Runtime` is the one contract: what a lock family answers, and all that the rest of the crate asks of it. A new
//! family is a folder with an implementation, and a line in `ALL`.

mod absl;
mod content;
mod cpython;
mod cxx;
mod futex;
#[cfg(feature = "internals")]
pub mod fuzzed;
mod glib;
pub mod glibc;
mod go;
mod gomp;
mod hotspot;
mod languages;
mod lock_word;
pub mod musl;
mod node;
mod pages;
mod parking_lot;
mod plan;
mod qt;
mod recipe;
mod records;
mod rust_std;
mod tasks;
mod tbb;
mod threads;
mod tokio;
mod wait;

pub(crate) use crate::memory::{u32_at, u64_at};
pub(crate) use crate::model::SetPlan;
pub use content::{Content, Owner};
pub use futex::{FutexOp, FutexWait};
pub(crate) use languages::{described as languages_of, name_of as language_of};
pub(crate) use lock_word::LockWord;
pub use plan::{SetError, plan};
pub(crate) use recipe::empty_plan;
pub use tasks::TaskScope;
pub(crate) use tasks::{
    CopiedStack, IN_SYSTEM_CALL, ROOT_OF_POLLS, SeenTasks, TaskCall, TaskCode, TaskContext, TaskFrame, TaskStand,
    TaskUse, ThreadPlace, has_any as has_tasks, is_among_threads, needs_no_libc, read as tasks_of,
    running as running_tasks,
};
pub use threads::LibcLayout;
pub(crate) use threads::ThreadRecord;
pub(crate) use tokio::{executor_of, other_executors};
pub(crate) use wait::{Class, Context, OutsideLibc, SeenWait, Spot};

use crate::model::{Detail, Evidence, Family, Libc, SyncKind, SyncObject, SyncState};
use crate::symbols::LockTypes;
use crate::target::{LwpFacts, Target};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

/// Those that are known. Where two could explain a wait, the first decides.
static ALL: [&dyn Runtime; 13] = [
    &glibc::Glibc,
    &musl::Musl,
    &cxx::Cxx,
    &rust_std::RustStd,
    &parking_lot::ParkingLot,
    &glib::Glib,
    &gomp::Gomp,
    &qt::Qt,
    &absl::Absl,
    &tbb::Tbb,
    &cpython::CPython,
    &hotspot::HotSpot,
    &node::Node,
];

/// What one system that makes locks knows of them.
pub(crate) trait Runtime: Sync {
    /// Whose objects it explains.
    fn families(&self) -> &'static [Family];

    /// What a thread waits for, by the function that it is in at `spot`.
    fn by_function(&self, _seen: &SeenWait<'_>, _spot: Spot<'_>, _context: &Context<'_>) -> Option<Class> {
        None
    }

    /// What a thread waits for, by the numbers it gave to the kernel and what lies around the word, where no
    /// function tells.
    fn by_numbers(&self, _seen: &SeenWait<'_>, _context: &Context<'_>) -> Option<Class> {
        None
    }

    /// What a thread waits for that is known to wait for `class`, where this runtime has built something of its own on that.
    fn known_better(&self, _class: &Class, _seen: &SeenWait<'_>, _context: &Context<'_>) -> Option<Class> {
        None
    }

    /// Whether a time limit ends no wait for such an object: the thread looks, and goes on waiting.
    fn keeps_waiting(&self, _kind: SyncKind, _family: Family) -> bool {
        false
    }

    /// What is particular about waits for such an object.
    fn nature(&self, _kind: SyncKind, _family: Family) -> Nature {
        Nature::Plain
    }

    /// Whether `function` only passes a system call on, so that its caller tells what it is for.
    fn passes_on(&self, _function: &str) -> bool {
        false
    }

    /// The mutex that whoever waits for the object has given up, if the `words` of its stack tell.
    fn given_up(&self, _class: &Class, _words: &[u64], _context: &Context<'_>) -> Option<RemoteAddr> {
        None
    }

    /// Bytes that are read of an object.
    fn bytes_of(&self, _kind: SyncKind, _family: Family) -> usize {
        4
    }

    /// What these bytes say.
    fn decode(&self, _class: &Class, bytes: &[u8], _context: &Context<'_>) -> Content {
        let value = u32_at(bytes, 0).unwrap_or(0);
        Content::plain(bytes, Some(4), SyncState::Unknown, Detail::Futex { value })
    }

    /// Whether an object names its owner by what only the list of all threads leads to.
    fn names_descriptor(&self, _kind: SyncKind, _family: Family) -> bool {
        false
    }

    /// Objects that threads have registered as theirs.
    fn registered(
        &self,
        _context: &Context<'_>,
        _facts: &BTreeMap<Lwp, LwpFacts>,
        _ids: &HashMap<Lwp, Option<PthreadId>>,
    ) -> Vec<Class> {
        Vec::new()
    }

    /// The kind of the object that `bytes` are, where they alone say so: one that is held by a thread that lives.
    fn held_by_content(&self, _bytes: &[u8], _is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        None
    }

    /// The kind of a variable that was taken for an object of `kind` by its size alone; `None` if its `bytes` show
    /// no sign of use as one.
    fn in_use(&self, kind: SyncKind, _bytes: &[u8], _is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
        Some(kind)
    }

    /// Whether an object names its holder, or has one that nobody should look for.
    fn hides_holder(&self, _family: Family) -> bool {
        false
    }

    /// Whether only the C library takes and releases an object, so that the frames of the C library tell who holds it.
    fn is_inside_libc(&self, _family: Family) -> bool {
        false
    }

    /// What people call an object that is no variable of the program. `entry` is the function of the C library that wants
    /// it, where that is known.
    fn own_name(&self, _object: &SyncObject, _entry: Option<&str>, _target: &dyn Target) -> Option<String> {
        None
    }

    /// What a call of the function `name` means for the code that follows.
    fn function(&self, _name: &str) -> Option<Function> {
        None
    }

    /// What the function `name` takes, or tries to take, without ever sleeping.
    fn tries(&self, _name: &str) -> Option<SyncKind> {
        None
    }

    /// Whether the function `name` calls another one back, once, while its first argument is in progress.
    fn executes_once(&self, _name: &str) -> bool {
        false
    }

    /// What a thread waits for that is asleep in the function `name`, demangled, or in one that this function called.
    fn waits_in(&self, _name: &str) -> Option<WaitWords> {
        None
    }

    /// Whether the function `name`, demangled, waits until another thread has something for its caller.
    fn awaits_work(&self, _name: &str) -> bool {
        false
    }

    /// Whether `function`, as symbols have its name, is a part of how its locks are taken, which programs may contain.
    fn is_part(&self, _function: &str) -> bool {
        false
    }

    /// How the word of an object tells that it is held.
    fn lock_word(&self, _kind: SyncKind, _family: Family) -> LockWord {
        LockWord::default()
    }

    /// The lock that a name for a type in C stands for.
    fn type_alias(&self, _name: &str) -> Option<SyncKind> {
        None
    }

    /// The lock that a structure of Rust is: by the last part of its name, and how the whole of it may begin.
    fn type_in_rust(&self, _name: &str) -> Option<(SyncKind, &'static [&'static str])> {
        None
    }

    /// Sizes by which variables without a type are known.
    fn variable_sizes(&self) -> &'static [(u64, SyncKind)] {
        &[]
    }

    /// Where objects may begin.
    fn alignment(&self, _family: Family) -> u64 {
        4
    }

    /// What it takes to give `object`, whose bytes are `bytes`, the state that `value` means.
    fn set_state(&self, object: &SyncObject, _bytes: &[u8], _value: i32) -> Result<SetPlan, SetError> {
        Err(SetError::no_state(object.kind))
    }

    /// Whether the agent inside a program counts what is done with its objects.
    fn is_counted(&self) -> bool {
        false
    }
}

/// What is particular about the waits for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Nothing.
    Plain,
    /// A thread of a language's runtime itself waits for work.
    OwnWork,
    /// Who could end the wait only the language knows. What a thread does there, where the object does not say it.
    Unseen(Option<&'static str>),
}

/// What a call of a function means for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Takes or releases the lock that is its first argument.
    Lock(Effect),
    /// Takes or releases the one lock that is a variable of its library, of which the file is called so.
    OnlyLock(Effect, &'static str),
    /// Waits for a condition: it gives up a lock, and takes that again before it comes back.
    Waits,
    /// Does not come back; also where an exception is caught, or goes on to the next frame.
    Never,
    /// Nothing that matters.
    Plain,
}

/// What a function on the stack of a waiting thread says of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitWords {
    /// It is a part of a wait: its caller may tell more.
    Part,
    /// What the thread waits for: `to receive from a channel`.
    Named(&'static str),
}

/// What something does to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Take,
    Release,
}

/// Stands for objects whose runtime is not known: all that the contract says without one.
struct Unknown;

impl Runtime for Unknown {
    fn families(&self) -> &'static [Family] {
        &[Family::Other]
    }

    /// A lock of the program's own is taken for held while its word is not 0.
    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let value = u32_at(bytes, 0).unwrap_or(0);
        let state = match (class.kind, value) {
            (SyncKind::Mutex, 0) => SyncState::Unlocked,
            (SyncKind::Mutex, _) => SyncState::Locked,
            _ => SyncState::Unknown,
        };
        Content::plain(bytes, Some(4), state, Detail::Futex { value })
    }
}

/// The runtime whose objects are of `family`.
pub(crate) fn of(family: Family) -> &'static dyn Runtime {
    ALL.into_iter().find(|runtime| runtime.families().contains(&family)).unwrap_or(&Unknown)
}

/// What a call of the function `name` means.
pub(crate) fn function(name: &str) -> Function {
    let known = ALL.iter().find_map(|runtime| runtime.function(name));
    known.unwrap_or_else(|| if awaits_work(name) { Function::Waits } else { Function::Plain })
}

/// What the function `name` takes, or tries to take, without ever sleeping.
pub(crate) fn tries(name: &str) -> Option<SyncKind> {
    ALL.iter().find_map(|runtime| runtime.tries(name))
}

/// Whether the function `name`, which takes a lock, may come back without the lock: it tries, has a time limit, or finds the work
/// done that the lock is for.
pub(crate) fn may_fail(name: &str) -> bool {
    ["try", "Try", "timed", "clock", "test", "Until", "For", "guard_acquire"].iter().any(|word| name.contains(word))
}

/// Whether the function `name` calls another one back, once.
pub(crate) fn executes_once(name: &str) -> bool {
    ALL.iter().any(|runtime| runtime.executes_once(name))
}

/// Whether `function` only passes system calls on.
pub(crate) fn passes_on(function: &str) -> bool {
    ALL.iter().any(|runtime| runtime.passes_on(function))
}

/// What a thread waits for, by the first runtime that knows the function at `spot`.
pub(crate) fn by_function(seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
    ALL.iter().find_map(|runtime| runtime.by_function(seen, spot, context))
}

/// What a thread waits for, by the functions that it is in, demangled, the innermost first: as the outermost of those tells
/// that wait.
pub(crate) fn waits_in<'f>(functions: impl IntoIterator<Item = &'f str>) -> Option<&'static str> {
    let words = |name: &str| ALL.iter().find_map(|runtime| runtime.waits_in(plain_name(name)));
    let named = |words| match words {
        WaitWords::Named(words) => Some(words),
        WaitWords::Part => None,
    };
    functions.into_iter().map_while(words).filter_map(named).last()
}

/// Whether the function `name`, demangled, waits until another thread has something for its caller: it wakes for work.
pub(crate) fn awaits_work(name: &str) -> bool {
    ALL.iter().any(|runtime| runtime.awaits_work(plain_name(name)))
}

/// In the names of functions that wake another thread, or hand it something.
const WAKES: [&str; 10] = [
    "cond_signal",
    "cond_broadcast",
    "cnd_signal",
    "notify_one",
    "notify_all",
    "sem_post",
    "::send",
    "unpark",
    "wakeOne",
    "async_queue_push",
];

/// Whether the function `name`, demangled, wakes a thread that waits for work.
pub(crate) fn wakes(name: &str) -> bool {
    // A signature may have anything in it.
    let name = name.split('(').find(|part| !part.is_empty()).unwrap_or(name);
    WAKES.iter().any(|part| name.contains(part))
}

/// A name without what templates of functions return, and without what surrounds the name of a method of Rust.
fn plain_name(name: &str) -> &str {
    let name = ["void ", "bool "].iter().find_map(|returned| name.strip_prefix(returned)).unwrap_or(name);
    name.trim_start_matches(['<', '&'])
}

/// What a thread waits for, by its numbers.
pub(crate) fn by_numbers(seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
    ALL.iter().find_map(|runtime| runtime.by_numbers(seen, context))
}

/// What a thread waits for that is known to wait for `class`, by the runtime that knows it best.
pub(crate) fn known_better(class: Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Class {
    ALL.iter().find_map(|runtime| runtime.known_better(&class, seen, context)).unwrap_or(class)
}

/// What is particular about waits for an object of `kind` and `family`.
pub(crate) fn nature(kind: SyncKind, family: Family) -> Nature {
    of(family).nature(kind, family)
}

/// All objects that threads have registered as theirs.
pub(crate) fn registered(
    context: &Context<'_>,
    facts: &BTreeMap<Lwp, LwpFacts>,
    ids: &HashMap<Lwp, Option<PthreadId>>,
) -> Vec<Class> {
    ALL.iter().flat_map(|runtime| runtime.registered(context, facts, ids)).collect()
}

/// An object at `address` with `bytes` that alone say what it is.
pub(crate) fn held_by_content(
    address: RemoteAddr,
    bytes: &[u8],
    is_thread: &dyn Fn(InnerTid) -> bool,
) -> Option<Class> {
    ALL.iter().find_map(|runtime| {
        let kind = runtime.held_by_content(bytes, is_thread)?;
        let family = *runtime.families().first()?;
        Some(Class::new(kind, family, address, Evidence::Inferred))
    })
}

/// Whose an object of `kind` is that the agent counts.
pub(crate) fn counted(kind: SyncKind) -> Option<Family> {
    glibc::locks::size_of(kind).map(|_| Family::Pthread)
}

/// Whose an object of `kind` is that a user names without saying whose, in a program with this C library.
pub(crate) fn usual(kind: SyncKind, libc: &Libc) -> Option<Family> {
    counted(kind).map(|family| own_family(family, libc))
}

/// Whose an object of `family` is in a program with this C library: types have the same names in all of them.
pub(crate) fn own_family(family: Family, libc: &Libc) -> Family {
    match (family, libc) {
        (Family::Pthread, Libc::Musl) => Family::Musl,
        (family, _) => family,
    }
}

/// The types of all runtimes.
pub struct Types;

impl LockTypes for Types {
    fn alias(&self, name: &str) -> Option<(SyncKind, Family)> {
        ALL.iter().find_map(|runtime| Some((runtime.type_alias(name)?, *runtime.families().first()?)))
    }

    fn in_rust(&self, name: &str, full: &mut dyn FnMut() -> Option<String>) -> Option<(SyncKind, Family)> {
        ALL.iter().find_map(|runtime| {
            let (kind, prefixes) = runtime.type_in_rust(name)?;
            let full = full()?;
            prefixes.iter().any(|prefix| full.starts_with(prefix)).then_some((kind, *runtime.families().first()?))
        })
    }

    fn is_function(&self, function: &str) -> bool {
        ALL.iter().any(|runtime| runtime.is_part(function))
    }

    fn sizes(&self) -> Vec<(u64, SyncKind, Family)> {
        let of = |runtime: &&'static dyn Runtime| {
            let family = runtime.families()[0];
            runtime.variable_sizes().iter().map(move |(size, kind)| (*size, *kind, family))
        };
        ALL.iter().flat_map(of).collect()
    }
}
