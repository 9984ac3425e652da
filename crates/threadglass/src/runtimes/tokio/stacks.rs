//! What the stacks of threads tell: which task each polls, and the futures of `block_on`. Such a future lies on the stack
//! of the thread that has called it, and in no list of tasks.

use super::types::{TypeRef, Types};
use super::version::executor_of;
use crate::arch::Registers;
use crate::elf::demangle;
use crate::model::StackEnd;
use crate::runtimes::tasks::{TaskContext, ThreadPlace};
use crate::symbols::{FrameVariable, Objects, VariablePlace};
use crate::target::Target;
use crate::unwind::{Known, Place, StackWords, Walker};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap};

/// Threads whose stacks are walked.
const MAX_THREADS: usize = 512;
/// Frames of tokio around the future that are asked for variables.
const MAX_ASKED: usize = 32;

/// Functions that poll a future for as long as it takes.
const BLOCK_ON: &str = "block_on";
/// The part of tokio for runtimes of one thread.
const SINGLE: &str = "current_thread";
/// What tokio calls the future in them.
const FUTURE: [&str; 2] = ["future", "f"];
/// In the names of functions in which a thread of tokio waits for events or to be woken.
const PARKED: [&str; 4] = ["park", "mio::", "::Driver", "epoll"];
/// What polls a task.
const POLLS_TASK: &str = "tokio::runtime::task::";
/// Code that stands between a poll and the function of the program.
const PASSING: [&str; 7] = ["tokio::", "core::", "std::", "alloc::", "mio::", "parking_lot", "__rust"];

/// What the thread does that is in `block_on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It waits to be woken.
    Waits,
    /// It polls a task, or nothing that is known.
    PollsTask,
    /// It polls the future.
    Polls,
}

/// One future of `block_on`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootFuture {
    pub(super) lwp: Lwp,
    /// Where the frame of `block_on` is.
    pub(super) frame: RemoteAddr,
    /// Where the future is, and its type, if debug information tells that.
    pub(super) value: Option<(RemoteAddr, TypeRef)>,
    /// Whether it can have been moved to nowhere else.
    pub(super) is_pinned: bool,
    /// Whether the thread is the only one of its runtime.
    pub(super) is_single: bool,
    pub(super) doing: Doing,
}

/// One frame: where it is, its registers, and the name of its function.
struct SeenFrame {
    place: Place,
    registers: Registers,
    name: Option<String>,
}

/// What stacks told.
#[derive(Default)]
pub(super) struct SeenStacks {
    /// Whether the whole stack of every thread was seen, with names.
    pub(super) is_whole: bool,
    /// Crates of other executors whose code threads are in.
    pub(super) executors: BTreeSet<&'static str>,
    /// The futures that threads are blocked on.
    pub(super) roots: Vec<RootFuture>,
    /// Where the functions begin that each thread is in; of threads whose whole stack was seen.
    functions: HashMap<Lwp, BTreeSet<u64>>,
    /// Threads that were not looked at.
    pub(super) left_out: usize,
}

impl SeenStacks {
    /// Whether the thread is in the function that begins at `start`; `None` where its stack was not seen.
    pub(super) fn is_in(&self, lwp: Lwp, start: RemoteAddr) -> Option<bool> {
        Some(self.functions.get(&lwp)?.contains(&start.0))
    }
}

/// Walks the stacks of threads that do not run.
pub(super) fn walk(context: &TaskContext<'_>, types: &Types<'_>) -> SeenStacks {
    let seen = SeenStacks { left_out: context.threads.len().saturating_sub(MAX_THREADS), ..SeenStacks::default() };
    let mut finder = Finder { context, types, known: Known::default(), names: HashMap::new(), seen };
    for thread in context.threads.iter().take(MAX_THREADS) {
        if context.target.limits().is_over() {
            break;
        }
        finder.thread(thread);
    }
    let named = finder.names.values().any(Option::is_some);
    finder.seen.is_whole = named && finder.seen.functions.len() == context.threads.len();
    finder.seen
}

struct Finder<'f> {
    context: &'f TaskContext<'f>,
    types: &'f Types<'f>,
    known: Known,
    names: HashMap<RemoteAddr, Option<String>>,
    seen: SeenStacks,
}

impl Finder<'_> {
    fn thread(&mut self, thread: &ThreadPlace) {
        let target = self.context.target;
        let call = target.wait_call(thread.lwp);
        let blocked = || call.and_then(|call| call.registers()).map(|(sp, pc)| Registers::blocked(pc, sp));
        // Of a thread that runs nothing tells where it is.
        let Some(registers) = target.registers_at_rest(thread.lwp).or_else(blocked) else { return };
        let (frames, is_whole) = self.frames(registers);
        let mut futures = Vec::new();
        let mut run: Option<(usize, usize)> = None;
        let mut inner = 0;
        for (index, frame) in frames.iter().enumerate() {
            if is_block_on(frame) {
                // One calls others of that name.
                run = Some((run.map_or(index, |(start, _)| start), index));
            } else if let Some((start, end)) = run.filter(|_| !is_passing(frame)) {
                futures.push(self.future(thread.lwp, &frames[start..=end], doing(&frames[inner..start])));
                (inner, run) = (index, None);
            }
        }
        if let Some((start, end)) = run {
            futures.push(self.future(thread.lwp, &frames[start..=end], doing(&frames[inner..start])));
        }
        let still = target.registers_at_rest(thread.lwp).is_some() || target.wait_call(thread.lwp) == call;
        if !still {
            return;
        }
        self.seen.roots.extend(futures);
        let names = frames.iter().filter_map(|frame| frame.name.as_deref());
        self.seen.executors.extend(names.filter_map(executor_of));
        if is_whole {
            let lookups = frames.iter().map(|frame| frame.place.lookup().0);
            let starts = lookups.filter_map(|at| Some(self.known.row(self.context.space, at)?.function.0));
            self.seen.functions.insert(thread.lwp, starts.collect());
        }
    }

    /// The frames of a thread, and whether these are all.
    fn frames(&mut self, registers: Registers) -> (Vec<SeenFrame>, bool) {
        let (space, mut frames) = (self.context.space, Vec::new());
        let mut stack = StackWords::live(self.context.target, registers.sp);
        let mut walker = Walker::whole(space, &mut self.known, None);
        let end = walker.frames(&mut stack, registers, &mut |place, registers| {
            frames.push(SeenFrame { place, registers: *registers, name: None });
        });
        for frame in &mut frames {
            let at = frame.place.lookup();
            let name = || self.context.objects.at(at)?.function_at(at).map(|symbol| demangle(&symbol.name));
            frame.name = self.names.entry(at).or_insert_with(name).clone();
        }
        (frames, end == StackEnd::Start)
    }

    /// The future that the functions `run` poll. One that is pinned is where its variable says. A variable that has the
    /// future itself may be what it was moved from: the caller sees by its state whether it was polled.
    fn future(&self, lwp: Lwp, run: &[SeenFrame], doing: Doing) -> RootFuture {
        let frame = run.last().map_or(RemoteAddr(0), |frame| frame.registers.sp);
        let asked = || run.iter().take(MAX_ASKED);
        let pinned = asked().find_map(|frame| self.value(frame, true));
        let value = pinned.or_else(|| asked().find_map(|frame| self.value(frame, false)));
        let in_single = |frame: &SeenFrame| frame.name.as_deref().is_some_and(|name| name.contains(SINGLE));
        let is_single = run.iter().any(in_single);
        RootFuture { lwp, frame, value, is_pinned: pinned.is_some(), is_single, doing }
    }

    fn value(&self, frame: &SeenFrame, is_pinned: bool) -> Option<(RemoteAddr, TypeRef)> {
        let objects: &Objects<'_> = self.context.objects;
        let at = frame.place.lookup();
        let object = objects.at(at)?;
        let index = objects.all().iter().position(|other| std::ptr::eq(other, object))?;
        let target: &dyn Target = self.context.target;
        let read = |addr: u64| target.read_u64(RemoteAddr(addr)).ok();
        let wants = |name: &str| name.starts_with("tokio::") && name.contains(BLOCK_ON);
        let variables = object.ask_types(|types| Some(types.frame_variables(at, &wants, &frame.registers, &read)))?;
        let mut futures = variables.iter().filter(|variable| FUTURE.contains(&variable.name.as_str()));
        if is_pinned {
            return futures.find_map(|variable| self.pinned(index, variable));
        }
        futures.find_map(|variable| match variable.place {
            VariablePlace::Memory(at) => Some((RemoteAddr(at), TypeRef { object: index, at: variable.of })),
            VariablePlace::Value(_) => None,
        })
    }

    /// Where the future is that `variable`, a `Pin<&mut F>`, leads to.
    fn pinned(&self, object: usize, variable: &FrameVariable) -> Option<(RemoteAddr, TypeRef)> {
        let known = self.types.get(TypeRef { object, at: variable.of })?;
        if !known.name().starts_with("core::pin::Pin<&mut ") {
            return None;
        }
        let pointer = self.types.get(known.reference(known.value.members.first()?.of))?;
        let of = pointer.reference(pointer.value.points_to?);
        let at = match variable.place {
            VariablePlace::Value(value) => value,
            VariablePlace::Memory(at) => self.context.target.read_u64(RemoteAddr(at)).ok()?,
        };
        (at > 0xffff).then_some((RemoteAddr(at), of))
    }
}

fn is_block_on(frame: &SeenFrame) -> bool {
    frame.name.as_deref().is_some_and(|name| {
        let path = name.trim_start_matches('<');
        path.starts_with("tokio::") && name.contains(BLOCK_ON)
    })
}

/// Whether a frame only stands between a poll and a function of the program.
fn is_passing(frame: &SeenFrame) -> bool {
    let path = frame.name.as_deref().unwrap_or_default().trim_start_matches('<');
    PASSING.iter().any(|start| path.starts_with(start)) && !path.starts_with(POLLS_TASK)
}

/// What a thread does in the frames that `block_on` has called, the innermost first.
fn doing(inner: &[SeenFrame]) -> Doing {
    for frame in inner.iter().rev() {
        let Some(name) = frame.name.as_deref() else { continue };
        let path = name.trim_start_matches('<');
        if path.starts_with(POLLS_TASK) {
            return Doing::PollsTask;
        }
        if PARKED.iter().any(|part| name.contains(part)) {
            return Doing::Waits;
        }
        if !is_passing(frame) {
            return Doing::Polls;
        }
    }
    Doing::Waits
}
