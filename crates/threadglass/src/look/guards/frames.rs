//! FrameState by frame: from where each stands, what would become of the locks.

use super::code::{Callee, Code, MAX_FUNCTION};
use super::effect::word_of;
use super::explore::{Explorer, LockUse, MAX_LOCKS};
use super::lsda::{MAX_LSDA, landing_pad};
use super::machine::{Machine, Value};
use super::pages::Pages;
use super::recover::{argument, block_before, is_for_futex, set_up};
use super::relevance::{References, is_near};
use super::{Clue, Grade, RestingThread, WantedLock, shape};
use crate::arch::Registers;
use crate::arch::insn::table::{DWARF, FIRST_ARGUMENT, KEPT, RESULT as RESULT_REGISTER, SECOND_ARGUMENT};
use crate::arch::insn::{Insn, Op};
use crate::by_number::ByAddress;
use crate::look::Look;
use crate::memory::read_each;
use crate::model::SyncKind;
use crate::runtimes::{self, Class, Effect, Function};
use crate::target::Target;
use crate::unwind::{Call, Place, Space, StackWords, Walk, Walker};
use crate::{Lwp, RemoteAddr};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Frames of one stack that are looked at.
const MAX_FRAMES: usize = 96;
/// Of each stack, what is read at once.
const FIRST: u64 = 8 << 10;
/// Stacks that are read together.
const BATCH: usize = 2048;
/// Instructions of the second look.
const SECOND_LOOK: usize = 300_000;
/// Instructions of the look at the ways here.
const WAY_HERE: usize = 300_000;
/// Bytes of a result that a call is given a place for: of what locks give (a guard, and whether it is one).
const RESULT: u64 = 32;
/// Bytes of the longest lock that has the word on which its waiters sleep.
const LONGEST_LOCK: u64 = 64;
/// Bytes of libc's frames between a call that executes something once and that.
const LIBC_FRAME: u64 = 512;
/// Frames in which a lock is taken whose waiters sleep, and instructions that are followed there.
const TAKERS: usize = 4;
const TO_TAKE: usize = 20_000;
/// Frames whose registers may be known to nobody but the thread.
const REPLAYED: usize = 6;

/// All clues that the stacks of `resting` give.
pub(super) fn search(look: &Look<'_>, wanted: &[WantedLock], resting: &[RestingThread]) -> Vec<Clue> {
    let mut search = Search::new(look.target, &look.space);
    if wanted.iter().any(|lock| word_of(lock).may_be_inside) {
        search.code.name_all(look.symbolizer());
    }
    search.wanted = wanted.iter().map(|lock| lock.address).collect();
    let is_inside = |lock: &WantedLock| runtimes::of(lock.family).is_inside_libc(lock.family);
    let (inside, wanted): (Vec<WantedLock>, Vec<WantedLock>) = wanted.iter().partition(|lock| is_inside(lock));
    search.is_inside = true;
    search.pass(&inside, resting, Pass::Near);
    search.is_inside = false;
    search.pass(&wanted, resting, Pass::Near);
    // Of locks without any suspect, again where their address does not show: in what frames point to. An empty semaphore
    // mostly has no holder at all.
    let missing = |lock: &&WantedLock| {
        lock.kind != SyncKind::Semaphore && search.found.iter().all(|clue| clue.object != lock.address)
    };
    let rest: Vec<WantedLock> = wanted.iter().filter(missing).copied().collect();
    if !rest.is_empty() {
        search.code.limit(SECOND_LOOK);
        search.pass(&rest, resting, Pass::All);
        let missing = |lock: &&WantedLock| {
            lock.kind != SyncKind::Once && search.found.iter().all(|clue| clue.object != lock.address)
        };
        let rest: Vec<WantedLock> =
            rest.iter().filter(missing).filter(|lock| word_of(lock).is_called).copied().collect();
        search.code.allow(WAY_HERE);
        search.pass(&rest, resting, Pass::WayHere);
    }
    search.found
}

/// What is looked for in a pass over all stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Releases ahead of frames that show an address of a lock.
    Near,
    /// Releases ahead of all frames.
    All,
    /// Locks taken on the way here.
    WayHere,
}

/// Which argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    First,
    Second,
}

/// An argument of the call that a blocked thread is in, as far as its code and registers tell: of the call by which it
/// entered the C library, or of that in the frame of this number, counted from there outwards.
pub(crate) fn argument_of_call(
    target: &dyn Target,
    space: &Space<'_>,
    (lwp, sp, pc): (Lwp, RemoteAddr, RemoteAddr),
    which: Argument,
    number: usize,
) -> Option<RemoteAddr> {
    let which = match which {
        Argument::First => FIRST_ARGUMENT,
        Argument::Second => SECOND_ARGUMENT,
    };
    let thread = RestingThread { lwp, sp, pc, stack_base: None, start: None, waits_on: None, futex: None };
    let mut search = Search::new(target, space);
    let stack = stacks(target, &[thread]).pop()?;
    let mut frames = search.frames(&thread, &stack);
    search.code.pages.set_stack(sp.0, stack);
    search.replay(&mut frames, &[], None);
    let frame = frames.get(number).filter(|frame| !frame.place.exact)?;
    let call = search.at_call(frame)?;
    let argument = call.regs[which].get(8).or_else(|| {
        // Not set just before the call: it may be what the function itself was given.
        let mut start = search.at_call(&frames[frame.caller?])?;
        start.pc = search.code.function(frame.place.lookup().0)?.0;
        start.set_sp(frame.top?.wrapping_sub(8));
        let here = (call.pc, frame.registers.sp.0);
        Explorer::arrival(&mut search.code, start, here, 0, &[])?[which].get(8)
    });
    argument.map(RemoteAddr)
}

/// Where a blocked thread goes on when its call of the C library returns, with the registers that it has then, as far as code
/// and memory tell.
pub(crate) fn after_call(
    target: &dyn Target,
    space: &Space<'_>,
    (lwp, sp, pc): (Lwp, RemoteAddr, RemoteAddr),
    start: Option<RemoteAddr>,
) -> Option<(u64, [Option<u64>; 16])> {
    let thread = RestingThread { lwp, sp, pc, stack_base: None, start, waits_on: None, futex: None };
    let mut search = Search::new(target, space);
    let stack = stacks(target, &[thread]).pop()?;
    let mut frames = search.frames(&thread, &stack);
    search.code.pages.set_stack(sp.0, stack);
    search.replay(&mut frames, &[], start);
    let frame = frames.first().filter(|frame| !frame.place.exact)?;
    let mut registers = machine(frame, frame.place.pc.0).regs.map(|value| value.get(8));
    registers[RESULT_REGISTER] = Some(0);
    Some((frame.place.pc.0, registers))
}

/// Whether a thread that sleeps on the word of `class` goes on to take it, as one that wants a lock does.
pub(crate) fn will_take(
    target: &dyn Target,
    space: &Space<'_>,
    (lwp, sp, pc): (Lwp, RemoteAddr, RemoteAddr),
    class: &Class,
) -> bool {
    let futex = Some(class.address);
    let thread = RestingThread { lwp, sp, pc, stack_base: None, start: None, waits_on: None, futex };
    let lock = WantedLock { address: class.address, size: 4, kind: class.kind, family: class.family };
    let mut search = Search::new(target, space);
    let Some(stack) = stacks(target, &[thread]).pop() else { return false };
    let mut frames = search.frames(&thread, &stack);
    search.code.pages.set_stack(sp.0, stack);
    search.code.limit(TO_TAKE);
    search.replay(&mut frames, &[lock], None);
    frames.iter().take(TAKERS).any(|frame| {
        if search.code.ends_at(frame.place.pc.0) {
            return false;
        }
        let onwards = search.onwards(frame);
        Explorer::run(&mut search.code, &[&lock], onwards, [0; MAX_LOCKS], None)[0].takes_for_sure
    })
}

/// Follows the code at `pc` in plain memory, with nothing but the stack pointer known, for tests and fuzzing; whether
/// it releases `lock`.
pub fn follow_bytes(space: &Space<'_>, pc: RemoteAddr, sp: RemoteAddr, lock: &WantedLock) -> bool {
    let machine = Machine::at(pc.0, sp.0);
    let seen = Explorer::run(&mut Code::new(space), &[lock], machine, [0; MAX_LOCKS], None);
    seen[0].releases && !seen[0].takes
}

/// What is read at once of each of their stacks.
fn stacks(target: &dyn Target, resting: &[RestingThread]) -> Vec<Vec<u8>> {
    let whole = |thread: &RestingThread| thread.stack_base.and_then(|base| base.0.checked_sub(thread.sp.0));
    let size = |thread| whole(thread).unwrap_or(FIRST).min(FIRST) as usize;
    read_each(target, resting.iter().map(|thread| (thread.sp, size(thread))))
}

/// Whether the word that the thread's system call waits on belongs to `lock`.
pub(super) fn sleeps_on(thread: &RestingThread, lock: &WantedLock) -> bool {
    let at = thread.futex.and_then(|word| word.0.checked_sub(lock.address.0));
    at.is_some_and(|at| at < lock.size)
}

/// Instructions, with their addresses.
pub(super) type Block = Rc<[(u64, Insn)]>;

pub(super) struct Search<'s> {
    target: &'s dyn Target,
    space: &'s Space<'s>,
    pub(super) code: Code<'s>,
    /// By call: its landing pad.
    pads: HashMap<u64, Option<u64>>,
    references: References,
    /// All locks whose holders are looked for.
    pub(super) wanted: HashSet<RemoteAddr>,
    /// Whether the locks at hand are the C library's own, so that its frames count.
    is_inside: bool,
    /// By return address: the instructions that lead to the call.
    blocks: ByAddress<Option<Block>>,
    pub(super) found: Vec<Clue>,
}

/// A frame from which a thread goes on.
pub(super) struct FrameState {
    pub(super) place: Place,
    pub(super) registers: Registers,
    /// The frame that called it; `None` where that is not known, or is the C library.
    caller: Option<usize>,
    /// Stack pointer of the caller.
    top: Option<u64>,
    /// For each lock at hand: whether the frame can have to do with it.
    about: [bool; MAX_LOCKS],
    /// Where the signal handler is that has interrupted the function of the frame.
    pub(super) handler: Option<RemoteAddr>,
}

impl<'s> Search<'s> {
    fn new(target: &'s dyn Target, space: &'s Space<'s>) -> Self {
        Self {
            target,
            space,
            code: Code::new(space),
            pads: HashMap::new(),
            references: References::default(),
            wanted: HashSet::new(),
            is_inside: false,
            blocks: ByAddress::default(),
            found: Vec::new(),
        }
    }

    /// Looks at all stacks.
    fn pass(&mut self, wanted: &[WantedLock], resting: &[RestingThread], pass: Pass) {
        let all = pass != Pass::Near;
        if wanted.is_empty() {
            return;
        }
        let mut without = HashSet::new();
        for part in resting.chunks(BATCH) {
            for (thread, stack) in part.iter().zip(stacks(self.target, part)) {
                if self.code.is_spent() {
                    // A second look is a bonus, and has little to spend.
                    if !all || self.space.is_late() {
                        let why = "the work that one look may do was spent on other threads";
                        self.target.limits().leave_out("threads that may hold a lock that records no holder", why);
                    }
                    return;
                }
                // What was found of nobody with such a stack will not be found of this one.
                let shape = shape::of(self.space, thread, &stack, wanted);
                if without.contains(&shape) {
                    continue;
                }
                let before = self.found.len();
                let mut frames = self.frames(thread, &stack);
                self.code.pages.set_stack(thread.sp.0, stack.clone());
                for part in wanted.chunks(MAX_LOCKS) {
                    if self.space.is_late() {
                        break;
                    }
                    self.mark_relevant(thread, &stack, &mut frames, part, all);
                    self.replay(&mut frames, part, thread.start);
                    match pass {
                        Pass::WayHere => self.look_behind(thread, &frames, part),
                        _ => self.look(thread, &frames, part),
                    }
                }
                if self.found.len() == before {
                    without.insert(shape);
                }
            }
        }
    }

    /// Finds out which of `frames` can have to do with which lock.
    fn mark_relevant(
        &mut self,
        thread: &RestingThread,
        stack: &[u8],
        frames: &mut [FrameState],
        wanted: &[WantedLock],
        all: bool,
    ) {
        for frame in frames {
            let offset = |addr: u64| usize::try_from(addr.saturating_sub(thread.sp.0)).unwrap_or(usize::MAX);
            let from = offset(frame.registers.sp.0).min(stack.len());
            // Of what was not read at once everything may be in there.
            let to = frame.top.map_or(usize::MAX, offset);
            let beyond = to > stack.len();
            let (words, _) = stack[from..to.clamp(from, stack.len())].as_chunks();
            let words = words.iter().copied().map(u64::from_le_bytes);
            let registers = KEPT.iter().filter_map(|number| frame.registers.get(DWARF[*number]));
            let mut values: Vec<u64> = words.chain(registers).collect();
            for place in [Some(frame.place.lookup().0), self.pad(frame)].into_iter().flatten() {
                if let Some(function) = self.code.function(place) {
                    values.extend(self.references.of(&mut self.code, function));
                }
            }
            frame.about = [all; MAX_LOCKS];
            for (about, lock) in frame.about.iter_mut().zip(wanted) {
                *about |= beyond || values.iter().any(|value| is_near(*value, lock));
            }
        }
    }

    fn frames(&mut self, thread: &RestingThread, stack: &[u8]) -> Vec<FrameState> {
        let registers = self.target.registers_at_rest(thread.lwp);
        let registers = registers.unwrap_or_else(|| Registers::blocked(thread.pc, thread.sp));
        let mut words = StackWords::begun(self.target, thread.sp, stack.to_vec());
        let (mut frames, mut places): (Vec<FrameState>, _) = (Vec::new(), Vec::new());
        let (space, is_inside) = (self.space, self.is_inside);
        let (mut last, mut handler) = (None, None);
        let mut walker = Walker::whole(space, &mut self.code.known, thread.start);
        let end = walker.frames(&mut words, registers, &mut |place, registers| {
            places.push(place);
            match place.signal {
                true => handler = last,
                false => last = Some(place.pc),
            }
            // Frames of the C library are left out: it calls nobody back with a lock of the program held.
            let is_libc = !is_inside && space.is_libc(place.lookup().0);
            let ours = frames.len() < MAX_FRAMES && !place.signal && !is_libc;
            let index = frames.len();
            if let Some(inner) = frames.last_mut().filter(|inner| inner.top.is_none() && !place.exact) {
                inner.top = Some(registers.sp.0);
                inner.caller = ours.then_some(index);
            }
            if ours {
                let about = [true; MAX_LOCKS];
                frames.push(FrameState { place, registers: *registers, caller: None, top: None, about, handler });
            }
        });
        space.remember(&registers, &Arc::new(Walk { places, end }));
        if let Some(futex) = thread.futex {
            match frames.as_mut_slice() {
                // The function that passes the call on is the program's own, as far as can be seen.
                [inner, frame, ..] if inner.place.exact && !frame.place.exact && inner.caller.is_some() => {
                    let block = self.block(frame);
                    if block.is_some_and(|block| is_for_futex(&block)) {
                        self.recover(frame, SECOND_ARGUMENT, futex.0);
                    }
                }
                [frame, ..] if self.passes_on(frame) => self.recover(frame, SECOND_ARGUMENT, futex.0),
                _ => {}
            }
        }
        // The function by which the thread waits was given what the thread waits for.
        let taker = frames.iter().take(TAKERS).position(|frame| self.takes(frame));
        if let Some((frame, lock)) = taker.and_then(|at| frames.get_mut(at)).zip(thread.waits_on) {
            self.recover(frame, FIRST_ARGUMENT, lock.0);
        }
        frames
    }

    /// The function that the frame has called, if it is a fixed one.
    fn called(&mut self, frame: &FrameState) -> Option<u64> {
        if frame.place.exact {
            return None;
        }
        match self.code.known.call(self.space, frame.place.pc.0) {
            Some(Call::To(function)) => Some(function),
            _ => None,
        }
    }

    /// Whether the frame has called a function that may only pass its system call on: by its name, if it has one.
    fn passes_on(&mut self, frame: &FrameState) -> bool {
        let name = self.called(frame).and_then(|function| self.space.exported(function));
        name.is_none_or(|name| runtimes::passes_on(&name))
    }

    /// Whether the frame has called a function that takes the lock that is its first argument.
    fn takes(&mut self, frame: &FrameState) -> bool {
        let callee = self.called(frame).map(|function| self.code.callee(function));
        matches!(callee, Some(Callee::Named(Function::Lock(Effect::Take), _)))
    }

    /// Completes the registers of the innermost frames, which nothing has saved: by going again the way from
    /// the call of each frame's function to where it stands. Outer ones first, as inner ones need them.
    fn replay(&mut self, frames: &mut [FrameState], wanted: &[WantedLock], start_routine: Option<RemoteAddr>) {
        for index in (0..frames.len().min(REPLAYED)).rev() {
            let frame = &frames[index];
            let own = frame.about.contains(&true);
            if !own && frame.caller.is_some_and(|caller| !frames[caller].about.contains(&true)) {
                continue;
            }
            let unknown = |number: &usize| frame.registers.get(DWARF[*number]).is_none();
            if !KEPT.iter().any(unknown) {
                continue;
            }
            let here = (frame.place.pc.0, frame.registers.sp.0);
            let known = KEPT.map(|number| (number, frame.registers.get(DWARF[number])));
            let entries =
                [self.entry(frames, index, start_routine), self.entry_unseen(frames, index).map(|it| (it, 0))];
            let found = entries.into_iter().flatten().find_map(|(mut start, base)| {
                forget_words(&mut start, &mut self.code.pages, wanted);
                Explorer::arrival(&mut self.code, start, here, base, &known)
            });
            let Some(found) = found else { continue };
            let FrameState { registers, about, .. } = &mut frames[index];
            for number in KEPT {
                let slot = &mut registers.general[usize::from(DWARF[number])];
                *slot = slot.or(found[number].get(8));
                for (about, lock) in about.iter_mut().zip(wanted) {
                    *about |= slot.is_some_and(|value| is_near(value, lock));
                }
            }
        }
    }

    /// The way to a frame begins here, with as many calls before it.
    pub(super) fn entry(
        &mut self,
        frames: &[FrameState],
        index: usize,
        start_routine: Option<RemoteAddr>,
    ) -> Option<(Machine, usize)> {
        let frame = &frames[index];
        let top = frame.top?;
        if let Some(caller) = frame.caller {
            return Some((self.at_call(&frames[caller])?, 1));
        }
        // The start routine may have jumped to the function instead of calling it.
        let function = || self.code.function(frame.place.lookup().0).map(|(function, _)| function);
        let start = start_routine.map(|start| start.0).or_else(function)?;
        Some((Machine::at(start, top.wrapping_sub(8)), 0))
    }

    /// The beginning of a frame's function that was called by way of a register, where it is not seen which function that was,
    /// and with which arguments.
    pub(super) fn entry_unseen(&mut self, frames: &[FrameState], index: usize) -> Option<Machine> {
        let frame = &frames[index];
        let caller = &frames[frame.caller?];
        if self.code.known.call(self.space, caller.place.pc.0) != Some(Call::Indirect) {
            return None;
        }
        let mut start = machine(caller, self.code.function(frame.place.lookup().0)?.0);
        start.set_sp(frame.top?.wrapping_sub(8));
        Some(start)
    }

    /// The instructions that lead to the frame's call.
    pub(super) fn block(&mut self, frame: &FrameState) -> Option<Block> {
        let back = frame.place.pc.0;
        let block = self.blocks.entry(back).or_insert_with(|| {
            let (start, _) = self.code.function(frame.place.lookup().0)?;
            block_before(&mut self.code, start, back).map(Rc::from)
        });
        block.clone()
    }

    /// The frame as it was at its call, with the call's arguments.
    fn at_call(&mut self, frame: &FrameState) -> Option<Machine> {
        let block = self.block(frame)?;
        let mut state = machine(frame, 0);
        set_up(&mut state, &mut self.code.pages, &block);
        Some(state)
    }

    /// Completes the registers of a frame by what its call was given in the register `which`.
    fn recover(&mut self, frame: &mut FrameState, which: usize, given: u64) {
        let block = if frame.place.exact { None } else { self.block(frame) };
        if let Some((register, distance)) = block.and_then(|block| argument(&block, which)) {
            let slot = &mut frame.registers.general[usize::from(DWARF[usize::from(register)])];
            *slot = slot.or(Some(given.wrapping_sub(distance as u64)));
        }
    }

    fn look(&mut self, thread: &RestingThread, frames: &[FrameState], part: &[WantedLock]) {
        let waits = |lock: &WantedLock| thread.waits_on == Some(lock.address) || sleeps_on(thread, lock);
        let mut debts: Vec<i8> = part.iter().map(|lock| i8::from(waits(lock))).collect();
        let mut named = vec![false; part.len()];
        self.executed_once(thread, frames, part);
        let waiting = usize::from(self.is_queued(thread));
        for frame in self.of_program(thread, frames).iter().skip(waiting) {
            let chosen: Vec<usize> = (0..part.len()).filter(|index| frame.about[*index] && !named[*index]).collect();
            if chosen.is_empty() {
                continue;
            }
            let wanted: Vec<&WantedLock> = chosen.iter().map(|index| &part[*index]).collect();
            let mut owed = [0; MAX_LOCKS];
            for (owed, index) in owed.iter_mut().zip(&chosen) {
                *owed = debts[*index];
            }
            // Behind a call that does not return begins another function.
            let ahead = match self.code.ends_at(frame.place.pc.0) && !frame.place.exact {
                true => [LockUse::default(); MAX_LOCKS],
                false => {
                    let onwards = self.onwards(frame);
                    Explorer::run(&mut self.code, &wanted, onwards, owed, None)
                }
            };
            let unwound = self.pad(frame).map(|pad| {
                // What it waits for has not been taken when the wait is left by an exception.
                for (owed, lock) in owed.iter_mut().zip(&wanted) {
                    *owed *= i8::from(!waits(lock));
                }
                Explorer::run(&mut self.code, &wanted, machine(frame, pad), owed, None)
            });
            for (at, (index, lock)) in chosen.iter().zip(&wanted).enumerate() {
                let holds = |seen: LockUse| seen.releases && !seen.takes;
                let ahead = ahead[at];
                let unwound = unwound.as_ref().is_some_and(|unwound| holds(unwound[at]));
                // A frame that goes on to take the lock has given it up for a while, as waits for conditions do.
                let unwound = unwound && (!ahead.takes || waits(lock));
                // What became of it in a function whose end was not seen is not known: as much as can be.
                if ahead.ends || ahead.takes {
                    // A thread that has waited for a once goes on when that is done, without having taken anything.
                    let keeps = ahead.keeps && lock.kind != SyncKind::Once;
                    debts[*index] = i8::from(keeps || !ahead.ends);
                }
                if !(unwound || holds(ahead)) {
                    continue;
                }
                let grade = if unwound {
                    Grade::Unwinds
                } else if self.took(frame, lock) {
                    Grade::TakesAndReleases
                } else {
                    Grade::Releases
                };
                // Whoever posts a semaphore need not have waited for it: that is how one thread wakes another.
                if lock.kind == SyncKind::Semaphore && grade == Grade::Releases {
                    continue;
                }
                // Whoever waits for a mutex goes on to release it. In a loop whose conditions are not known that looks like
                // two releases, so only a guard, a frame further out, or one that a signal handler has interrupted shows that
                // the thread has the mutex already.
                let is_interrupted = frame.handler.is_some();
                if lock.kind == SyncKind::Mutex
                    && grade < Grade::Unwinds
                    && waits(lock)
                    && owed[at] > 0
                    && !is_interrupted
                {
                    continue;
                }
                named[*index] = true;
                let (frame, handler) = (frame.place.pc, frame.handler);
                self.found.push(Clue { object: lock.address, lwp: thread.lwp, grade, frame, handler });
            }
        }
    }

    /// The frames without those that have called the thread's start routine: what libc does at the end of a thread releases no
    /// lock, and where that code has no table it seems to return and to call the start routine anew.
    fn of_program<'f>(&mut self, thread: &RestingThread, frames: &'f [FrameState]) -> &'f [FrameState] {
        let Some(start) = thread.start else { return frames };
        let begins =
            |frame: &FrameState| self.code.function(frame.place.lookup().0).is_some_and(|(begin, _)| begin == start.0);
        match frames.iter().rposition(begins) {
            Some(outermost) => &frames[..=outermost],
            None => frames,
        }
    }

    /// Finds what the thread executes once: between two frames of the program stands the function of libc that was
    /// called to execute the inner one, and has the address of the object.
    fn executed_once(&mut self, thread: &RestingThread, frames: &[FrameState], part: &[WantedLock]) {
        let onces: Vec<&WantedLock> = part.iter().filter(|lock| lock.kind == SyncKind::Once).collect();
        if onces.is_empty() {
            return;
        }
        for (inner, frame) in frames.iter().zip(frames.iter().skip(1)) {
            let (Some(from), to, None) = (inner.top, frame.registers.sp.0, inner.caller) else { continue };
            // A function that ends in a jump to libc's does not show which one that is.
            let called = match self.code.known.call(self.space, frame.place.pc.0) {
                Some(Call::To(function)) if self.space.is_libc(function) => self.space.exported(function),
                _ => None,
            };
            if called.is_some_and(|name| !runtimes::executes_once(&name)) {
                continue;
            }
            let words: Vec<u64> = (from..to.min(from.saturating_add(LIBC_FRAME)))
                .step_by(8)
                .filter_map(|at| self.code.pages.word(at))
                .collect();
            let clues = onces.iter().filter(|lock| words.contains(&lock.address.0)).map(|lock| Clue {
                object: lock.address,
                lwp: thread.lwp,
                grade: Grade::TakesAndReleases,
                frame: frame.place.pc,
                handler: None,
            });
            self.found.extend(clues);
        }
    }

    /// Whether a thread waits for a lock in a queue, on a word of its own. Then its innermost frame is that of the
    /// function that takes the lock. That takes no other one, but what guards the queue looks like one.
    fn is_queued(&self, thread: &RestingThread) -> bool {
        let lock = thread.waits_on.filter(|lock| self.wanted.contains(lock));
        lock.zip(thread.futex).is_some_and(|(lock, word)| word.0.wrapping_sub(lock.0) >= LONGEST_LOCK)
    }

    /// The frame as it goes on when its call has returned.
    fn onwards(&mut self, frame: &FrameState) -> Machine {
        let mut state = machine(frame, frame.place.pc.0);
        let (from, to) = (frame.registers.sp.0, frame.top.unwrap_or(0));
        let result = if frame.place.exact { None } else { self.at_call(frame) };
        // Where the call puts its result there is still something older, which may look like a guard.
        if let Some(at) = result.and_then(|call| call.regs[FIRST_ARGUMENT].get(8)).filter(|at| (from..to).contains(at))
        {
            let end = to.min(at.saturating_add(RESULT));
            for slot in (at..end).step_by(8) {
                state.store(&mut self.code.pages, slot, 8, Value::UNKNOWN);
            }
        }
        state
    }

    /// Where an exception out of the frame's call would go on.
    fn pad(&mut self, frame: &FrameState) -> Option<u64> {
        if frame.place.exact {
            return None;
        }
        let call = frame.place.lookup().0;
        *self.pads.entry(call).or_insert_with(|| {
            let row = self.code.known.row(self.space, call)?;
            let at = row.lsda?;
            let table = self.target.read_up_to(RemoteAddr(at), MAX_LSDA).ok()?;
            landing_pad(&table, at, row.function.0, call).filter(|pad| self.space.is_code(*pad))
        })
    }

    /// Whether the frame's function has a call, before where it stands, that takes `lock`, and a way from there to here.
    fn took(&mut self, frame: &FrameState, lock: &WantedLock) -> bool {
        let end = frame.place.pc.0;
        let Some((mut at, _)) = self.code.function(frame.place.lookup().0) else { return false };
        if end.saturating_sub(at) > MAX_FUNCTION {
            return false;
        }
        let mut block = Vec::new();
        while at < end {
            let Some(insn) = self.code.insn(at) else { return false };
            let next = at.wrapping_add(u64::from(insn.len));
            block.push((at, insn));
            // The call in which it stands is not before that.
            if insn.op == Op::Call && next < end || insn.op == Op::Cmpxchg {
                let mut state = machine(frame, 0);
                set_up(&mut state, &mut self.code.pages, &block);
                let seen = Explorer::run(&mut self.code, &[lock], state.clone(), [0; MAX_LOCKS], Some(next));
                let leads_here = frame.place.exact || self.code.reaches(next, end);
                if seen[0].takes && leads_here && self.is_kept(frame, lock, state) {
                    return true;
                }
            }
            if matches!(insn.op, Op::Jmp | Op::Jcc(_) | Op::Ret | Op::Stop | Op::Call) {
                block.clear();
            }
            at = next;
        }
        false
    }

    /// Whether a thread that takes `lock` at `taking` still has it on some way to where the frame stands. Of locks that are
    /// released only by who has taken them, that a release is ahead says as much.
    fn is_kept(&mut self, frame: &FrameState, lock: &WantedLock, taking: Machine) -> bool {
        if lock.kind != SyncKind::Semaphore {
            return true;
        }
        let call = self.block(frame).and_then(|block| block.last().map(|(at, _)| *at));
        let place = (call.unwrap_or(frame.place.pc.0), frame.registers.sp.0);
        Explorer::may_keep(&mut self.code, &[lock], taking, place)
    }
}

/// Makes the words of onces unknown to `state`: they were others when the thread came by.
fn forget_words(state: &mut Machine, pages: &mut Pages<'_>, wanted: &[WantedLock]) {
    for lock in wanted.iter().filter(|lock| lock.kind == SyncKind::Once) {
        state.store(pages, lock.address.0, lock.size.min(8) as u8, Value::UNKNOWN);
    }
}

/// The frame's registers when it goes on at `pc`: those that the call has given back.
fn machine(frame: &FrameState, pc: u64) -> Machine {
    let mut regs = [Value::UNKNOWN; 16];
    for number in KEPT {
        regs[number] = frame.registers.get(DWARF[number]).into();
    }
    // What a signal has interrupted goes on with all of its registers.
    if frame.place.exact && frame.handler.is_some() && pc == frame.place.pc.0 {
        regs = DWARF.map(|number| frame.registers.get(number).into());
    }
    Machine::new(pc, regs)
}
