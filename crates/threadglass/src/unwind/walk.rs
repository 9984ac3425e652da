//! From a thread's registers up its stack.
//!
//! Written on `gimli` and not with `framehop`: that one goes on by frame pointers, without a word, where
//! a rule cannot be found or followed (signal frames, realigned stacks, no table), and takes every
//! register for known. Here a frame that cannot be undone by its own rule ends the stack, and a register
//! that is not known is not used. Where there is no rule at all (code without tables), the function itself is followed to
//! its return. Frame pointers are followed only where that leads nowhere (generated code), and what is found by them is
//! inferred.

use super::call::Call;
use super::cfi::{Cfa, Rule, UnwindRow};
use super::expression::evaluate;
use super::infer;
use super::space::{Known, Space};
use super::stack::StackWords;
use crate::RemoteAddr;
use crate::arch::prologue::{FramePhase, frame_phase};
use crate::arch::{FRAME_POINTER, FRAME_POINTER_NAME, RETURN, Registers, STACK_POINTER};
use crate::limits::NO_TIME;
use crate::model::{Evidence, StackEnd};

/// Frames of one stack. Deeper ones are cut.
pub const MAX_FRAMES: usize = 512;
/// Bytes of a frame that is found by a frame pointer.
const MAX_FRAME: u64 = 1 << 20;
/// Bytes of a function from its beginning to an instruction in it.
const MAX_BODY: u64 = 64 << 10;
/// Times a stack may lead to another place, as signal frames do that run on a stack of their own.
const MAX_JUMPS: usize = 16;

/// One frame: a place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The innermost frame's program counter, or the return address.
    pub pc: RemoteAddr,
    /// Whether `pc` is where the thread is or was interrupted; otherwise the call before it is.
    pub exact: bool,
    /// Whether this frame is a signal trampoline.
    pub signal: bool,
    /// How it is known.
    pub evidence: Evidence,
    /// Of one that is inferred: whether nothing else was possible.
    pub firm: bool,
}

impl Place {
    /// An address within the instruction that the frame is at, for looking it up.
    pub fn lookup(&self) -> RemoteAddr {
        RemoteAddr(if self.exact { self.pc.0 } else { self.pc.0.wrapping_sub(1) })
    }
}

/// A stack as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// From the innermost frame outwards.
    pub places: Vec<Place>,
    /// Why it ends.
    pub end: StackEnd,
}

/// What a walk needs besides the registers.
pub(crate) struct Walker<'w, 'a> {
    pub(crate) space: &'w Space<'a>,
    pub(crate) known: &'w mut Known,
    /// Where the thread's start routine begins.
    pub(crate) start_routine: Option<u64>,
    /// How many frames outside libc are enough.
    pub(crate) enough: usize,
    /// How many frames are followed at most; [`MAX_FRAMES`] or fewer.
    pub(crate) most: usize,
}

impl<'w, 'a> Walker<'w, 'a> {
    /// For all frames of a stack.
    pub(crate) fn whole(space: &'w Space<'a>, known: &'w mut Known, start: Option<RemoteAddr>) -> Self {
        Self { space, known, start_routine: start.map(|start| start.0), enough: usize::MAX, most: MAX_FRAMES }
    }

    pub(crate) fn walk(&mut self, stack: &mut StackWords<'_>, registers: Registers) -> Walk {
        let mut places = Vec::new();
        let end = self.frames(stack, registers, &mut |place, _| places.push(place));
        Walk { places, end }
    }

    /// Gives each frame to `frame`, with its registers as far as they are known, and why there are no more.
    pub(crate) fn frames(
        &mut self,
        stack: &mut StackWords<'_>,
        mut registers: Registers,
        frame: &mut dyn FnMut(Place, &Registers),
    ) -> StackEnd {
        let mut count = 0;
        let unknown = |why: String| StackEnd::Unknown { why };
        let mut evidence = Evidence::Recorded;
        let mut exact = true;
        let mut jumps = 0;
        let mut outside = 0;
        let mut firm = true;
        // Where the function of the frame before begins.
        let mut inner = None;
        loop {
            if count >= self.most.min(MAX_FRAMES) {
                return StackEnd::Limit;
            }
            let mut place = Place { pc: registers.pc, exact, signal: false, evidence, firm };
            let lookup = place.lookup().0;
            let row = self.known.row(self.space, lookup);
            place.signal = row.as_ref().is_some_and(|row| row.signal);
            // The frame behind a trampoline is looked up before its first instruction, on purpose.
            place.exact |= place.signal;
            frame(place, &registers);
            count += 1;
            if !self.space.is_libc(lookup) {
                outside += 1;
                if outside >= self.enough {
                    return StackEnd::Limit;
                }
            }
            let Some(row) = row else {
                if self.space.is_late() {
                    return unknown(NO_TIME.into());
                }
                // What called the start routine is not called by anybody.
                if inner.take().is_some_and(|inner| self.start_routine == Some(inner)) {
                    return StackEnd::Start;
                }
                match self.caller_by_code(&registers, exact, stack) {
                    Some(Followed::Caller(caller, is_firm)) => {
                        evidence = evidence.max(if is_firm { Evidence::Derived } else { Evidence::Inferred });
                        (firm, exact) = (firm && is_firm, false);
                        registers = *caller;
                        continue;
                    }
                    Some(Followed::Start) => return StackEnd::Start,
                    None => {}
                }
                if let Some(caller) = self.caller_by_frame_pointer(&registers, exact, stack) {
                    (evidence, firm, exact) = (Evidence::Inferred, false, false);
                    registers = caller;
                    continue;
                }
                return unknown(match self.space.is_in_object(lookup) {
                    true => format!("no unwind information for {}", registers.pc),
                    false => format!("{} is in no mapped file (generated code?)", registers.pc),
                });
            };
            inner = Some(row.function.0);
            if matches!(row.rule(RETURN), Some(Rule::Undefined)) {
                return StackEnd::Start;
            }
            if registers.get(FRAME_POINTER).is_none() && row.cfa_is_on(FRAME_POINTER) {
                let found = infer::frame_pointer(self.space, self.known, stack, &registers, &row, self.start_routine);
                let Some(found) = found else {
                    return unknown(format!(
                        "the frame needs {FRAME_POINTER_NAME}, which is not known unless the thread is stopped"
                    ));
                };
                registers = registers.with_frame_pointer(found.pointer);
                evidence = Evidence::Inferred;
                firm &= found.firm;
            }
            let Some(caller) = step(&row, &registers, stack) else {
                return unknown(format!("the frame at {} cannot be unwound", registers.sp));
            };
            if caller.pc.is_null() {
                return StackEnd::Start;
            }
            if caller.sp <= registers.sp {
                jumps += 1;
                if !row.signal || jumps > MAX_JUMPS {
                    return unknown(format!("the stack goes the wrong way at {}", registers.sp));
                }
            }
            let back = caller.pc.0;
            if !self.space.is_code(back) {
                return unknown(format!("the return address {} is not in code", caller.pc));
            }
            // What rests on a conclusion must not contradict it.
            if evidence == Evidence::Inferred && !row.signal && !self.is_called(back) {
                return unknown(format!("there is no call before the return address {}", caller.pc));
            }
            if evidence == Evidence::Recorded {
                evidence = Evidence::Derived;
            }
            exact = row.signal;
            registers = caller;
        }
    }

    /// The caller of a function of an object that has no unwind rule, by how the function goes on to its return. Of
    /// several frames only one may be left from which there is a call.
    fn caller_by_code(&mut self, registers: &Registers, exact: bool, stack: &mut StackWords<'_>) -> Option<Followed> {
        let pc = registers.pc.0;
        if self.space.has_faulty_table(pc) || !self.space.is_in_object(pc) {
            return None;
        }
        let found = self.known.followed(self.space, pc);
        // A thread that has called nobody stands in a function that somebody called.
        if found.is_start && !exact {
            return Some(Followed::Start);
        }
        let callers = found.rows.iter().filter_map(|row| step(row, registers, stack));
        let callers: Vec<Registers> = callers.filter(|caller| caller.sp > registers.sp).collect();
        let mut callers = callers.into_iter().filter(|caller| self.is_called(caller.pc.0));
        let caller = callers.next()?;
        callers.next().is_none().then_some(Followed::Caller(Box::new(caller), found.rows.len() == 1))
    }

    /// The caller of a function that has no unwind rule, if it keeps a frame pointer: the register leads to a frame on this
    /// stack, and behind that to the end of a call. Nothing proves that the register is one, so what follows is inferred.
    fn caller_by_frame_pointer(
        &mut self,
        registers: &Registers,
        exact: bool,
        stack: &mut StackWords<'_>,
    ) -> Option<Registers> {
        if self.space.has_faulty_table(registers.pc.0) {
            return None;
        }
        let (sp, frame) = (registers.sp.0, registers.get(FRAME_POINTER)?);
        let phase = match exact {
            true => frame_phase(&self.space.code::<8>(registers.pc.0)?),
            // It has called somebody.
            false => FramePhase::Set,
        };
        let is_near = frame.checked_sub(sp).is_some_and(|size| size <= MAX_FRAME) && frame % 8 == 0;
        let own = Some(frame).filter(|_| is_near).and_then(|at| Some((at.checked_add(8)?, stack.word(at)?)));
        let (slot, callers_frame) = match phase {
            FramePhase::Bare => (sp, frame),
            FramePhase::Saved => (sp.checked_add(8)?, frame),
            FramePhase::Set if exact => match self.has_own_frame(registers.pc.0, sp, own.map(|it| it.0), stack)? {
                true => own?,
                false => (sp, frame),
            },
            FramePhase::Set => own?,
        };
        let back = stack.word(slot)?;
        if !self.space.is_code(back) || !self.is_called(back) {
            return None;
        }
        let caller = Registers::blocked(RemoteAddr(back), RemoteAddr(slot.checked_add(8)?));
        Some(caller.with_frame_pointer(callers_frame))
    }

    /// Whether the innermost function, which is at `pc`, has made a frame of its own. Compilers leave it out where the
    /// function calls nobody and keeps nothing on the stack: then the frame pointer is the caller's, and the return address
    /// is on top of the stack. Calls of a fixed place tell: the function begins where the right one leads. `None` when that
    /// is neither.
    fn has_own_frame(&mut self, pc: u64, sp: u64, slot: Option<u64>, stack: &mut StackWords<'_>) -> Option<bool> {
        let mut called_at = |slot: u64| match self.known.call(self.space, stack.word(slot)?)? {
            Call::To(target) => Some(target),
            Call::Indirect => None,
        };
        let reaches = |target: &u64| pc.checked_sub(*target).is_some_and(|size| size < MAX_BODY);
        let (on_top, framed) = (called_at(sp).filter(reaches), slot.and_then(called_at));
        match (on_top, framed) {
            // The nearer beginning is the function's.
            (Some(bare), Some(framed)) => Some(framed > bare && reaches(&framed)),
            (Some(_), None) => Some(false),
            (None, Some(framed)) => reaches(&framed).then_some(true),
            // A call by way of a register.
            (None, None) => Some(true),
        }
    }

    /// Whether a function that returns to `back` can have been called: by a call before it, or by the
    /// kernel to handle a signal.
    fn is_called(&mut self, back: u64) -> bool {
        self.known.call(self.space, back).is_some()
            || self.known.row(self.space, back.wrapping_sub(1)).is_some_and(|row| row.signal)
    }
}

/// What a function without an unwind rule leads to.
enum Followed {
    /// The registers of its caller, and whether nothing else was possible.
    Caller(Box<Registers>, bool),
    /// Nothing: it does not return.
    Start,
}

/// The caller's registers.
fn step(row: &UnwindRow, registers: &Registers, stack: &mut StackWords<'_>) -> Option<Registers> {
    let mut read = |addr| stack.word(addr);
    let cfa = match &row.cfa {
        Cfa::Register(register, offset) => registers.get(*register)?.checked_add_signed(*offset)?,
        Cfa::Expression(code) => evaluate(code, registers, None, &mut read)?,
    };
    let mut caller = Registers { pc: RemoteAddr::NULL, sp: RemoteAddr(cfa), general: registers.preserved() };
    for (register, rule) in &row.rules {
        let value = match rule {
            Rule::Undefined => None,
            Rule::Same => registers.get(*register),
            Rule::At(offset) => cfa.checked_add_signed(*offset).and_then(&mut read),
            Rule::Is(offset) => cfa.checked_add_signed(*offset),
            Rule::Register(other) => registers.get(*other),
            Rule::AtExpression(code) => evaluate(code, registers, Some(cfa), &mut read).and_then(&mut read),
            Rule::IsExpression(code) => evaluate(code, registers, Some(cfa), &mut read),
        };
        match *register {
            RETURN => caller.pc = RemoteAddr(value?),
            // A signal frame restores it from its record.
            STACK_POINTER => caller.sp = RemoteAddr(value?),
            register => {
                if let Some(slot) = caller.general.get_mut(usize::from(register)) {
                    *slot = value;
                }
            }
        }
    }
    row.rule(RETURN).map(|_| caller)
}
