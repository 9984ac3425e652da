//! Frame by frame: from where each stands, what would become of the locks.

use super::code::Code;
use super::explore::{Explorer, MAX_LOCKS, Seen};
use super::insn::Op;
use super::lsda::{MAX_LSDA, landing_pad};
use super::machine::{Machine, Value};
use super::pages::Pages;
use super::recover::argument;
use super::{Clue, Grade, Stander, Wanted};
use crate::RemoteAddr;
use crate::model::SyncKind;
use crate::target::{Slot, Target};
use crate::unwind::{Place, Registers, Space, StackWords, Walker};
use std::collections::HashMap;

/// Frames of one stack that are looked at.
const MAX_FRAMES: usize = 96;
/// Of each stack, what is read at once.
const FIRST: u64 = 8 << 10;
/// Of a function, what is searched for where it took a lock.
const MAX_FUNCTION: u64 = 64 << 10;
/// Instructions before a call that set up its arguments.
const ARGUMENTS: usize = 12;

/// Registers in the order of the encoding, by their DWARF numbers.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// Those that a function gives back as it found them, and the stack pointer; in the encoding's order.
const KEPT: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];

/// All clues that the stacks of `standers` give.
pub(super) fn search(target: &dyn Target, space: &Space<'_>, wanted: &[Wanted], standers: &[Stander]) -> Vec<Clue> {
    let mut search = Search {
        target,
        space,
        code: Code::new(space),
        pages: Pages::new(target),
        pads: HashMap::new(),
        recovered: HashMap::new(),
        found: Vec::new(),
    };
    let mut stacks: Vec<Vec<u8>> = standers.iter().map(|stander| vec![0; stack_size(stander)]).collect();
    let mut slots: Vec<Slot<'_>> =
        standers.iter().zip(&mut stacks).map(|(stander, stack)| Slot::new(stander.sp, stack)).collect();
    target.read_many(&mut slots);
    let sizes: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
    for ((stander, mut stack), size) in standers.iter().zip(stacks).zip(sizes) {
        stack.truncate(size);
        let frames = search.frames(stander, &stack);
        search.pages.set_stack(stander.sp.0, stack);
        for part in wanted.chunks(MAX_LOCKS) {
            search.look(stander, &frames, &part.iter().collect::<Vec<_>>());
        }
    }
    search.found
}

fn stack_size(stander: &Stander) -> usize {
    let whole = stander.stack_base.and_then(|base| base.0.checked_sub(stander.sp.0)).unwrap_or(FIRST);
    whole.min(FIRST) as usize
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
    found: Vec<Clue>,
}

/// A frame from which a thread goes on.
struct Frame {
    place: Place,
    registers: Registers,
}

impl Search<'_> {
    fn frames(&mut self, stander: &Stander, stack: &[u8]) -> Vec<Frame> {
        let registers = self.target.registers_at_rest(stander.lwp);
        let registers = registers.unwrap_or_else(|| Registers::blocked(stander.pc, stander.sp));
        let mut words = StackWords::begun(self.target, stander.sp, stack.to_vec());
        let mut frames = Vec::new();
        let space = self.space;
        let mut walker =
            Walker { space, known: &mut self.code.known, start_routine: stander.start.map(|start| start.0) };
        walker.frames(&mut words, registers, &mut |place, registers| {
            // What the C library does there is its own affair: it calls nobody back with a lock held.
            if frames.len() < MAX_FRAMES && !place.signal && !space.is_libc(place.lookup().0) {
                frames.push(Frame { place, registers: *registers });
            }
        });
        if let Some((frame, futex)) = frames.first_mut().zip(stander.futex) {
            self.recover(frame, futex.0);
        }
        frames
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

    fn look(&mut self, stander: &Stander, frames: &[Frame], wanted: &[&Wanted]) {
        let waits = |lock: &Wanted| stander.waits_on == Some(lock.address);
        let mut owed = [0; MAX_LOCKS];
        for (owed, lock) in owed.iter_mut().zip(wanted) {
            *owed = i8::from(waits(lock));
        }
        let mut named = [false; MAX_LOCKS];
        for frame in frames {
            let ahead = self.explore(wanted, machine(frame, frame.place.pc.0), &owed, None);
            let pad = self.pad(frame);
            let unwound = pad.map(|pad| {
                // What it waits for has not been taken when the wait is left by an exception.
                let mut owed = owed;
                for (owed, lock) in owed.iter_mut().zip(wanted) {
                    *owed *= i8::from(!waits(lock));
                }
                self.explore(wanted, machine(frame, pad), &owed, None)
            });
            for (index, lock) in wanted.iter().enumerate() {
                let holds = |seen: Seen| seen.releases && !seen.takes;
                let ahead = ahead[index];
                let unwound = unwound.as_ref().is_some_and(|unwound| holds(unwound[index]));
                // A frame that goes on to take the lock has given it up for a while, as waits for conditions do.
                let unwound = unwound && (!ahead.takes || waits(lock));
                if ahead.ends {
                    owed[index] = i8::from(ahead.keeps);
                }
                if named[index] || !(unwound || holds(ahead)) {
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
                named[index] = true;
                self.found.push(Clue { object: lock.address, lwp: stander.lwp, grade, frame: frame.place.pc });
            }
        }
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
        let mut block: Vec<u64> = Vec::new();
        while at < end {
            let Some(insn) = self.code.insn(&mut self.pages, at) else { return false };
            let next = at.wrapping_add(u64::from(insn.len));
            block.push(at);
            match insn.op {
                Op::Call | Op::Cmpxchg if next < end || insn.op == Op::Cmpxchg => {
                    let from = block[block.len().saturating_sub(ARGUMENTS)];
                    let seen = self.explore(&[lock], machine(frame, from), &[0; MAX_LOCKS], Some(next));
                    if seen[0].takes {
                        return true;
                    }
                    if insn.op == Op::Call {
                        block.clear();
                    }
                }
                Op::Jmp | Op::Jcc(_) | Op::Ret | Op::Stop => block.clear(),
                _ => {}
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
