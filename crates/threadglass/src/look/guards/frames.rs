//! Frame by frame: from where each stands, what would become of the locks.

use super::addresses::ByAddress;
use super::code::Code;
use super::explore::{Explorer, MAX_LOCKS, Seen};
use super::lsda::{MAX_LSDA, landing_pad};
use super::machine::{Machine, Value};
use super::pages::Pages;
use super::recover::{argument, block_before, set_up};
use super::relevance::{References, is_near};
use super::{Clue, Grade, Stander, Wanted, shape};
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::arch::insn::table::{DWARF, FIRST_ARGUMENT, KEPT, STACK_POINTER};
use crate::arch::insn::{Insn, Op};
use crate::memory::Slot;
use crate::model::SyncKind;
use crate::target::Target;
use crate::unwind::{Place, Space, StackWords, Walk, Walker};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Frames of one stack that are looked at.
const MAX_FRAMES: usize = 96;
/// Of each stack, what is read at once.
const FIRST: u64 = 8 << 10;
/// Stacks that are read together.
const BATCH: usize = 2048;
/// Of a function, what is searched for where it took a lock.
const MAX_FUNCTION: u64 = 64 << 10;
/// Instructions of the second look.
const SECOND_LOOK: usize = 300_000;
/// Bytes of a result that a call is given a place for: of what locks give (a guard, and whether it is one).
const RESULT: u64 = 32;
/// Frames whose registers may be known to nobody but the thread.
const REPLAYED: usize = 6;

/// All clues that the stacks of `standers` give.
pub(super) fn search(target: &dyn Target, space: &Space<'_>, wanted: &[Wanted], standers: &[Stander]) -> Vec<Clue> {
    let mut search = Search::new(target, space);
    search.pass(wanted, standers, false);
    // Of locks without any suspect, again where their address does not show: in what frames point to.
    let missing = |lock: &&Wanted| search.found.iter().all(|clue| clue.object != lock.address);
    let rest: Vec<Wanted> = wanted.iter().filter(missing).copied().collect();
    if !rest.is_empty() {
        search.code.limit(SECOND_LOOK);
        search.pass(&rest, standers, true);
    }
    search.found
}

/// The first argument of the call that led from the innermost frame outside of the C library into it.
pub(super) fn first_argument(target: &dyn Target, space: &Space<'_>, stander: &Stander) -> Option<u64> {
    let mut search = Search::new(target, space);
    let mut stack = vec![0; stack_size(stander)];
    let got = target.read_at(stander.sp, &mut stack).ok()?;
    stack.truncate(got);
    let mut frames = search.frames(stander, &stack);
    search.pages.set_stack(stander.sp.0, stack);
    let mut relevant = vec![[true; MAX_LOCKS]; frames.len()];
    search.replay(&mut frames, &mut relevant, &[], stander.start);
    let frame = frames.first().filter(|frame| !frame.place.exact)?;
    let call = search.at_call(frame, frame.place.pc.0)?;
    call.regs[FIRST_ARGUMENT].get(8).or_else(|| {
        // Not set just before the call: it may be what the function itself was given.
        let mut start = search.at_call(frames.get(frame.caller?)?, frames[frame.caller?].place.pc.0)?;
        start.pc = search.code.known.row(space, frame.place.lookup().0)?.function.0;
        start.set_sp(frame.top?.wrapping_sub(8));
        let here = (call.pc, frame.registers.sp.0);
        Explorer::arrival(&mut search.code, &mut search.pages, start, here, 0)?[FIRST_ARGUMENT].get(8)
    })
}

/// Follows code from one place, with nothing but the stack pointer known.
pub(super) fn follow(space: &Space<'_>, pc: RemoteAddr, sp: RemoteAddr, lock: &Wanted) -> bool {
    let mut regs = [Value::UNKNOWN; 16];
    regs[STACK_POINTER] = Value::of(sp.0);
    let mut pages = Pages::new(space.memory());
    let machine = Machine::new(pc.0, regs);
    let seen = Explorer::run(&mut Code::new(space), &mut pages, &[lock], machine, &[0; MAX_LOCKS], None);
    seen[0].releases && !seen[0].takes
}

/// What is read at once of each of their stacks.
fn stacks(target: &dyn Target, standers: &[Stander]) -> Vec<Vec<u8>> {
    let mut stacks: Vec<Vec<u8>> = standers.iter().map(|stander| vec![0; stack_size(stander)]).collect();
    let mut slots: Vec<Slot<'_>> =
        standers.iter().zip(&mut stacks).map(|(stander, stack)| Slot::new(stander.sp, stack)).collect();
    target.read_many(&mut slots);
    let sizes: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
    for (stack, size) in stacks.iter_mut().zip(sizes) {
        stack.truncate(size);
    }
    stacks
}

fn stack_size(stander: &Stander) -> usize {
    let whole = stander.stack_base.and_then(|base| base.0.checked_sub(stander.sp.0)).unwrap_or(FIRST);
    whole.min(FIRST) as usize
}

/// Whether the word that the thread's system call waits on belongs to `lock`.
fn sleeps_on(stander: &Stander, lock: &Wanted) -> bool {
    let at = stander.futex.and_then(|word| word.0.checked_sub(lock.address.0));
    at.is_some_and(|at| at < lock.size)
}

struct Search<'s> {
    target: &'s dyn Target,
    space: &'s Space<'s>,
    code: Code<'s>,
    pages: Pages<'s>,
    /// By return address: the landing pad of the call before it.
    pads: HashMap<u64, Option<u64>>,
    /// By return address: the register from which the system call's argument came, and how far from it.
    recovered: HashMap<u64, Option<(u8, i64)>>,
    references: References,
    /// By return address: the instructions that lead to the call.
    blocks: ByAddress<Option<Vec<(u64, Insn)>>>,
    found: Vec<Clue>,
}

/// A frame from which a thread goes on.
struct Frame {
    place: Place,
    registers: Registers,
    /// The frame that called it; `None` where that is not known, or is the C library.
    caller: Option<usize>,
    /// Stack pointer of the caller.
    top: Option<u64>,
}

impl<'s> Search<'s> {
    fn new(target: &'s dyn Target, space: &'s Space<'s>) -> Self {
        Self {
            target,
            space,
            code: Code::new(space),
            pages: Pages::new(target),
            pads: HashMap::new(),
            recovered: HashMap::new(),
            references: References::default(),
            blocks: ByAddress::default(),
            found: Vec::new(),
        }
    }

    /// Looks at all stacks, at `all` their frames or at those that show an address of a lock.
    fn pass(&mut self, wanted: &[Wanted], standers: &[Stander], all: bool) {
        let mut without = HashSet::new();
        for part in standers.chunks(BATCH) {
            let stacks = stacks(self.target, part);
            self.pass_over(wanted, part, &stacks, all, &mut without);
        }
    }

    fn pass_over(
        &mut self,
        wanted: &[Wanted],
        standers: &[Stander],
        stacks: &[Vec<u8>],
        all: bool,
        without: &mut HashSet<u64>,
    ) {
        for (stander, stack) in standers.iter().zip(stacks) {
            if self.code.is_spent() {
                // A second look is a bonus, and has little to spend.
                if !all || self.space.is_late() {
                    let why = "their code is followed only so far, and all of that was spent on other threads";
                    self.target.limits().leave_out("threads that may hold a lock which does not say so", why);
                }
                break;
            }
            // What was found of nobody with such a stack will not be found of this one.
            let shape = shape::of(self.space, stander, stack, wanted);
            if without.contains(&shape) {
                continue;
            }
            let before = self.found.len();
            let mut frames = self.frames(stander, stack);
            self.pages.set_stack(stander.sp.0, stack.clone());
            for part in wanted.chunks(MAX_LOCKS) {
                if self.space.is_late() {
                    break;
                }
                let mut relevant = self.relevant(stander, stack, &frames, part, all);
                self.replay(&mut frames, &mut relevant, part, stander.start);
                self.look(stander, &frames, part, &relevant);
            }
            if self.found.len() == before {
                without.insert(shape);
            }
        }
    }

    /// For each of `frames` and each lock: whether it can have to do with it.
    fn relevant(
        &mut self,
        stander: &Stander,
        stack: &[u8],
        frames: &[Frame],
        wanted: &[Wanted],
        all: bool,
    ) -> Vec<[bool; MAX_LOCKS]> {
        let mut relevant = Vec::new();
        for frame in frames {
            let mut about = [all; MAX_LOCKS];
            let offset = |addr: u64| usize::try_from(addr.saturating_sub(stander.sp.0)).unwrap_or(usize::MAX);
            let from = offset(frame.registers.sp.0).min(stack.len());
            // Of what was not read at once everything may be in there.
            let to = frame.top.map_or(usize::MAX, offset);
            let beyond = to > stack.len();
            let words = stack[from..to.clamp(from, stack.len())].chunks_exact(8);
            let words = words.map(|bytes| u64::from_le_bytes(std::array::from_fn(|at| bytes[at])));
            let registers = KEPT.iter().filter_map(|number| frame.registers.get(DWARF[*number]));
            let mut values: Vec<u64> = words.chain(registers).collect();
            for place in [Some(frame.place.lookup().0), self.pad(frame)].into_iter().flatten() {
                if let Some(row) = self.code.known.row(self.space, place) {
                    values.extend(self.references.of(&mut self.code, &mut self.pages, row.function));
                }
            }
            for (about, lock) in about.iter_mut().zip(wanted) {
                *about |= beyond || values.iter().any(|value| is_near(*value, lock));
            }
            relevant.push(about);
        }
        relevant
    }

    fn frames(&mut self, stander: &Stander, stack: &[u8]) -> Vec<Frame> {
        let registers = self.target.registers_at_rest(stander.lwp);
        let registers = registers.unwrap_or_else(|| Registers::blocked(stander.pc, stander.sp));
        let mut words = StackWords::begun(self.target, stander.sp, stack.to_vec());
        let (mut frames, mut places): (Vec<Frame>, _) = (Vec::new(), Vec::new());
        let space = self.space;
        let mut walker = Walker {
            space,
            known: &mut self.code.known,
            start_routine: stander.start.map(|start| start.0),
            enough: usize::MAX,
            most: crate::unwind::MAX_FRAMES,
        };
        let end = walker.frames(&mut words, registers, &mut |place, registers| {
            places.push(place);
            // What the C library does there is its own affair: it calls nobody back with a lock held.
            let ours = frames.len() < MAX_FRAMES && !place.signal && !space.is_libc(place.lookup().0);
            let index = frames.len();
            if let Some(inner) = frames.last_mut().filter(|inner| inner.top.is_none() && !place.exact) {
                inner.top = Some(registers.sp.0);
                inner.caller = ours.then_some(index);
            }
            if ours {
                frames.push(Frame { place, registers: *registers, caller: None, top: None });
            }
        });
        space.remember(&registers, &Arc::new(Walk { places, end }));
        if let Some((frame, futex)) = frames.first_mut().zip(stander.futex) {
            self.recover(frame, futex.0);
        }
        frames
    }

    /// Completes the registers of the innermost frames, which nothing has saved: by going again the way from
    /// the call of each frame's function to where it stands. Outer ones first, as inner ones need them.
    fn replay(
        &mut self,
        frames: &mut [Frame],
        relevant: &mut [[bool; MAX_LOCKS]],
        wanted: &[Wanted],
        start_routine: Option<RemoteAddr>,
    ) {
        for index in (0..frames.len().min(REPLAYED)).rev() {
            let frame = &frames[index];
            let own = relevant[index].contains(&true);
            if !own && frame.caller.is_some_and(|caller| !relevant[caller].contains(&true)) {
                continue;
            }
            let unknown = |number: &usize| frame.registers.get(DWARF[*number]).is_none();
            let (Some(top), true) = (frame.top, KEPT.iter().any(unknown)) else { continue };
            let Some(row) = self.code.known.row(self.space, frame.place.lookup().0) else { continue };
            let start = match frame.caller.map(|caller| &frames[caller]) {
                Some(caller) => self.at_call(caller, caller.place.pc.0),
                // The start routine may have jumped to the function instead of calling it.
                None => {
                    let start = start_routine.map_or(row.function.0, |start| start.0);
                    let mut regs = [Value::UNKNOWN; 16];
                    regs[STACK_POINTER] = Value::of(top.wrapping_sub(8));
                    Some(Machine::new(start, regs))
                }
            };
            let Some(start) = start else { continue };
            let base = usize::from(frame.caller.is_some());
            let here = (frame.place.pc.0, frame.registers.sp.0);
            let Some(found) = Explorer::arrival(&mut self.code, &mut self.pages, start, here, base) else { continue };
            for number in KEPT {
                let slot = &mut frames[index].registers.general[usize::from(DWARF[number])];
                *slot = slot.or(found[number].get(8));
                for (about, lock) in relevant[index].iter_mut().zip(wanted) {
                    *about |= slot.is_some_and(|value| is_near(value, lock));
                }
            }
        }
    }

    /// The frame as it was at the call of its function that returns to `back`, with the call's arguments.
    fn at_call(&mut self, frame: &Frame, back: u64) -> Option<Machine> {
        if !self.blocks.contains_key(&back) {
            let row = self.code.known.row(self.space, frame.place.lookup().0);
            let block = row.and_then(|row| block_before(&mut self.code, &mut self.pages, row.function.0, back));
            self.blocks.insert(back, block);
        }
        let mut state = machine(frame, 0);
        set_up(&mut state, &mut self.pages, self.blocks.get(&back)?.as_ref()?);
        Some(state)
    }

    /// Completes the registers of the innermost frame by what the system call was given.
    fn recover(&mut self, frame: &mut Frame, futex: u64) {
        let back = frame.place.pc.0;
        let found = self.recovered.entry(back).or_insert_with(|| {
            let row = self.code.known.row(self.space, back.wrapping_sub(1)).filter(|_| !frame.place.exact)?;
            argument(&mut self.code, &mut self.pages, row.function.0, back)
        });
        if let Some((register, distance)) = *found {
            let slot = &mut frame.registers.general[usize::from(DWARF[usize::from(register)])];
            *slot = slot.or(Some(futex.wrapping_sub(distance as u64)));
        }
    }

    fn look(&mut self, stander: &Stander, frames: &[Frame], part: &[Wanted], relevant: &[[bool; MAX_LOCKS]]) {
        let waits = |lock: &Wanted| stander.waits_on == Some(lock.address) || sleeps_on(stander, lock);
        let mut debts: Vec<i8> = part.iter().map(|lock| i8::from(waits(lock))).collect();
        let mut named = vec![false; part.len()];
        for (frame, about) in frames.iter().zip(relevant) {
            let chosen: Vec<usize> = (0..part.len()).filter(|index| about[*index] && !named[*index]).collect();
            if chosen.is_empty() {
                continue;
            }
            let wanted: Vec<&Wanted> = chosen.iter().map(|index| &part[*index]).collect();
            let mut owed = [0; MAX_LOCKS];
            for (owed, index) in owed.iter_mut().zip(&chosen) {
                *owed = debts[*index];
            }
            let onwards = self.onwards(frame);
            let ahead = self.explore(&wanted, onwards, &owed, None);
            let unwound = self.pad(frame).map(|pad| {
                // What it waits for has not been taken when the wait is left by an exception.
                for (owed, lock) in owed.iter_mut().zip(&wanted) {
                    *owed *= i8::from(!waits(lock));
                }
                self.explore(&wanted, machine(frame, pad), &owed, None)
            });
            for (at, (index, lock)) in chosen.iter().zip(&wanted).enumerate() {
                let holds = |seen: Seen| seen.releases && !seen.takes;
                let ahead = ahead[at];
                let unwound = unwound.as_ref().is_some_and(|unwound| holds(unwound[at]));
                // A frame that goes on to take the lock has given it up for a while, as waits for conditions do.
                let unwound = unwound && (!ahead.takes || waits(lock));
                // What became of it in a function whose end was not seen is not known: as much as can be.
                if ahead.ends || ahead.takes {
                    // Who has waited for a once goes on when it is done, without having taken anything.
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
                named[*index] = true;
                self.found.push(Clue { object: lock.address, lwp: stander.lwp, grade, frame: frame.place.pc });
            }
        }
    }

    /// The frame as it goes on when its call has returned.
    fn onwards(&mut self, frame: &Frame) -> Machine {
        let mut state = machine(frame, frame.place.pc.0);
        let (from, to) = (frame.registers.sp.0, frame.top.unwrap_or(0));
        let result = if frame.place.exact { None } else { self.at_call(frame, frame.place.pc.0) };
        // Where the call puts its result there is still something older, which may look like a guard.
        if let Some(at) = result.and_then(|call| call.regs[FIRST_ARGUMENT].get(8)).filter(|at| (from..to).contains(at))
        {
            let end = to.min(at.saturating_add(RESULT));
            for slot in (at..end).step_by(8) {
                state.store(&mut self.pages, slot, 8, Value::UNKNOWN);
            }
        }
        state
    }

    fn explore(
        &mut self,
        wanted: &[&Wanted],
        machine: Machine,
        owed: &[i8; MAX_LOCKS],
        until: Option<u64>,
    ) -> [Seen; MAX_LOCKS] {
        Explorer::run(&mut self.code, &mut self.pages, wanted, machine, owed, until)
    }

    /// Where an exception out of the frame's call would go on.
    fn pad(&mut self, frame: &Frame) -> Option<u64> {
        if frame.place.exact {
            return None;
        }
        let back = frame.place.pc.0;
        if let Some(known) = self.pads.get(&back) {
            return *known;
        }
        let row = self.code.known.row(self.space, back.wrapping_sub(1));
        let pad = row.and_then(|row| {
            let at = row.lsda?;
            let mut bytes = vec![0; MAX_LSDA];
            let got = self.target.read_at(RemoteAddr(at), &mut bytes).ok()?;
            landing_pad(&bytes[..got], at, row.function.0, back.wrapping_sub(1)).filter(|pad| self.space.is_code(*pad))
        });
        self.pads.insert(back, pad);
        pad
    }

    /// Whether the frame's function has a call, before where it stands, that takes `lock`.
    fn took(&mut self, frame: &Frame, lock: &Wanted) -> bool {
        let end = frame.place.pc.0;
        let Some(row) = self.code.known.row(self.space, frame.place.lookup().0) else { return false };
        let mut at = row.function.0;
        if end.saturating_sub(at) > MAX_FUNCTION {
            return false;
        }
        let mut block = Vec::new();
        while at < end {
            let Some(insn) = self.code.insn(&mut self.pages, at) else { return false };
            let next = at.wrapping_add(u64::from(insn.len));
            block.push((at, insn));
            // The call in which it stands is not before that.
            if insn.op == Op::Call && next < end || insn.op == Op::Cmpxchg {
                let mut state = machine(frame, 0);
                set_up(&mut state, &mut self.pages, &block);
                let seen = self.explore(&[lock], state, &[0; MAX_LOCKS], Some(next));
                if seen[0].takes {
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
}

/// The frame's registers when it goes on at `pc`: those that the call has given back.
fn machine(frame: &Frame, pc: u64) -> Machine {
    let mut regs = [Value::UNKNOWN; 16];
    for number in KEPT {
        regs[number] = frame.registers.get(DWARF[number]).into();
    }
    Machine::new(pc, regs)
}
