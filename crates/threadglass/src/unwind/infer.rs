//! The frame pointer of a thread that was not stopped.
//!
//! `/proc` tells only pc and sp of a blocked thread. Code that keeps the register free of a frame does
//! not need more, and often a function further in has saved it where the unwind rules find it. What remains is
//! a frame whose extent is known only relative to a frame pointer that nobody has saved. Such a frame shows itself
//! on the stack: above its return address there must be a call that reaches it.

use super::call::Call;
use super::cfi::{Cfa, Rule, UnwindRow};
use super::space::{Known, Space};
use super::stack::StackWords;
use crate::RemoteAddr;
use crate::arch::code::jumps_to;
use crate::arch::prologue::{frame_size, frame_sizes};
use crate::arch::{FRAME_POINTER, RETURN, Registers};

/// How far up a frame is searched for. Larger ones than this are rare, and each word is one more chance
/// to take an old return address for a new one.
const REACH: u64 = 256 << 10;

/// Places that are compared with one another. Recursion has as many as it has frames.
const MAX_CANDIDATES: usize = 64;
/// Bytes of a function that are read for its prologue.
const PROLOGUE: usize = 96;
/// Bytes of a function that are searched for a jump.
const MAX_BODY: u64 = 8 << 10;
/// Frames by which a place must prove itself among others.
const PROOF: usize = 8;

/// A frame pointer that was concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InferredPointer {
    pub(super) pointer: u64,
    /// Whether the function's own prologue puts its frame there, and a direct call of it is found: then there
    /// is nothing else that it can be.
    pub(super) firm: bool,
}

/// The value that the frame pointer must have in the frame with `registers`; `None` when nothing convinces.
pub(super) fn frame_pointer(
    space: &Space<'_>,
    known: &mut Known,
    stack: &mut StackWords<'_>,
    registers: &Registers,
    row: &UnwindRow,
    start_routine: Option<u64>,
) -> Option<InferredPointer> {
    if !is_standard(row) {
        return None;
    }
    let (sp, function) = (registers.sp.0, row.function.0);
    let mut search = FrameSearch { space, known, stack };
    let least = space.code::<32>(function).and_then(|code| frame_size(&code));
    // The prologue says how large the frame is. A direct call of the function there leaves no doubt.
    let code: [u8; PROLOGUE] = space.code(function).unwrap_or([0; PROLOGUE]);
    let places = frame_sizes(&code).into_iter().filter_map(|size| sp.checked_add(size));
    let places: Vec<u64> = places
        .filter(|at| match search.call_at(*at) {
            Some(Call::To(target)) => target == function || search.jumps(target, function),
            _ => false,
        })
        .collect();
    if let [pointer] = places[..] {
        return Some(InferredPointer { pointer, firm: true });
    }
    if let Some(pointer) = least.and_then(|size| sp.checked_add(size))
        && search.call_at(pointer) == Some(Call::Indirect)
    {
        return Some(InferredPointer { pointer, firm: false });
    }
    // Otherwise (arguments pushed for a call, arrays of variable size) only a call of this very function
    // convinces.
    let from = sp.checked_add(least.unwrap_or(0))?.checked_next_multiple_of(16)?;
    let mut candidates = Vec::new();
    let mut at = from;
    while at - from < REACH && candidates.len() < MAX_CANDIDATES {
        // The end of the stack.
        if search.stack.word(at.checked_add(8)?).is_none() {
            break;
        }
        let reached = match search.call_at(at) {
            Some(Call::To(target)) => target == function,
            Some(Call::Indirect) => start_routine == Some(function),
            None => false,
        };
        if reached {
            candidates.push(at);
        }
        at = at.checked_add(16)?;
    }
    let concluded = |pointer| Some(InferredPointer { pointer, firm: false });
    if let [only] = candidates[..] {
        return concluded(only);
    }
    // A recursion's outer frames are such places too, and so may be what earlier calls have left behind.
    // The right one is the first from which every frame was called as it should be, and leads to the others.
    let mut proven = candidates.into_iter().filter_map(|at| Some((at, search.chain(at, function)?)));
    let (first, chain) = proven.next()?;
    let agree = proven.all(|(other, _)| chain.contains(&other) || chain.last().is_some_and(|last| other > *last));
    if agree { concluded(first) } else { None }
}

/// The common rule: the caller's frame pointer at CFA-16, return address at CFA-8, CFA 16 above the frame pointer.
fn is_standard(row: &UnwindRow) -> bool {
    matches!(row.cfa, Cfa::Register(FRAME_POINTER, 16))
        && matches!(row.rule(FRAME_POINTER), Some(Rule::At(-16)))
        && matches!(row.rule(RETURN), Some(Rule::At(-8)))
}

struct FrameSearch<'s, 'a, 'b> {
    space: &'s Space<'a>,
    known: &'s mut Known,
    stack: &'s mut StackWords<'b>,
}

impl FrameSearch<'_, '_, '_> {
    /// The call that made the frame whose frame pointer is `pointer`; `None` when no frame can be there.
    fn call_at(&mut self, pointer: u64) -> Option<Call> {
        let back = self.stack.word(pointer.checked_add(8)?)?;
        if !self.space.is_code(back) {
            return None;
        }
        let caller = self.known.row(self.space, back.checked_sub(1)?)?;
        // A signal handler was called by the kernel, which leaves no instruction behind.
        let call = if caller.signal { Call::Indirect } else { self.known.call(self.space, back)? };
        // A caller that needs its frame pointer must find it further up.
        let saved = self.stack.word(pointer)?;
        (!caller.cfa_is_on(FRAME_POINTER) || saved > pointer).then_some(call)
    }

    /// Whether the function at `start` hands its call on to `function`: by a jump, which leaves no trace on the
    /// stack.
    fn jumps(&mut self, start: u64, function: u64) -> bool {
        let Some(row) = self.known.row(self.space, start).filter(|row| row.function.0 == start) else { return false };
        let length = row.function.1.saturating_sub(start).min(MAX_BODY) as usize;
        let code = self.space.memory.read_vec(RemoteAddr(start), length);
        code.is_ok_and(|code| jumps_to(&code, start, function))
    }

    /// The frame pointers from `pointer` (of `function`) outwards, as far as they need one; `None` when one
    /// of them was not called by the frame around it.
    fn chain(&mut self, mut pointer: u64, mut function: u64) -> Option<Vec<u64>> {
        let mut chain = Vec::new();
        while chain.len() < PROOF {
            match self.call_at(pointer)? {
                Call::To(target) if target != function => return None,
                _ => chain.push(pointer),
            }
            let back = self.stack.word(pointer.checked_add(8)?)?;
            let caller = self.known.row(self.space, back.checked_sub(1)?)?;
            if !is_standard(&caller) {
                break;
            }
            (pointer, function) = (self.stack.word(pointer)?, caller.function.0);
        }
        Some(chain)
    }
}
