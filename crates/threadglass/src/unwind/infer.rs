//! The frame pointer of a thread that was not stopped.
//!
//! `/proc` tells only pc and sp of a blocked thread. Code that keeps rbp free of a frame does not need
//! more, and often a function further in has saved rbp where the unwind rules find it. What remains is a
//! frame whose extent is known only relative to an rbp that nobody has saved. Such a frame shows itself
//! on the stack: above its return address there must be a call that reaches it.

use super::call::Call;
use super::cfi::{Cfa, Row, Rule};
use super::registers::{RBP, RETURN, Registers};
use super::space::{Known, Space};
use super::stack::StackWords;
use crate::RemoteAddr;
use crate::x86::{Alu, Op, Operand, RSP, decode};

/// How far up a frame is searched for. Larger ones than this are rare, and each word is one more chance
/// to take an old return address for a new one.
const REACH: u64 = 256 << 10;

/// Places that are compared with one another. Recursion has as many as it has frames.
const MAX_CANDIDATES: usize = 64;
/// Bytes of a function that are read for its prologue.
const PROLOGUE: usize = 96;
/// Number of rbp in instructions.
const FRAME: u8 = 5;
/// Bytes of a function that are searched for a jump.
const MAX_BODY: u64 = 8 << 10;
/// Frames by which a place must prove itself among others.
const PROOF: usize = 8;

/// An rbp that was concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) rbp: u64,
    /// Whether the function's own prologue puts its frame there, and a direct call of it is found: then there
    /// is nothing else that it can be.
    pub(super) firm: bool,
}

/// The value that rbp must have in the frame with `registers`; `None` when nothing convinces.
pub(super) fn rbp(
    space: &Space<'_>,
    known: &mut Known,
    stack: &mut StackWords<'_>,
    registers: &Registers,
    row: &Row,
    start_routine: Option<u64>,
) -> Option<Found> {
    if !is_standard(row) {
        return None;
    }
    let (sp, function) = (registers.sp.0, row.function.0);
    let mut search = Search { space, known, stack };
    let least = prologue(space, function);
    // The prologue says how large the frame is. A direct call of the function there leaves no doubt.
    let code: [u8; PROLOGUE] = space.code(function).unwrap_or([0; PROLOGUE]);
    let places = frame_sizes(&code).into_iter().filter_map(|size| sp.checked_add(size));
    let places: Vec<u64> = places
        .filter(|at| match search.call_at(*at) {
            Some(Call::To(target)) => target == function || search.jumps(target, function),
            _ => false,
        })
        .collect();
    if let [rbp] = places[..] {
        return Some(Found { rbp, firm: true });
    }
    if let Some(rbp) = least.and_then(|size| sp.checked_add(size))
        && search.call_at(rbp) == Some(Call::Indirect)
    {
        return Some(Found { rbp, firm: false });
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
    let concluded = |rbp| Some(Found { rbp, firm: false });
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

/// The common rule: caller's rbp at CFA-16, return address at CFA-8, CFA 16 above rbp.
fn is_standard(row: &Row) -> bool {
    matches!(row.cfa, Cfa::Register(RBP, 16))
        && matches!(row.rule(RBP), Some(Rule::At(-16)))
        && matches!(row.rule(RETURN), Some(Rule::At(-8)))
}

struct Search<'s, 'a, 'b> {
    space: &'s Space<'a>,
    known: &'s mut Known,
    stack: &'s mut StackWords<'b>,
}

impl Search<'_, '_, '_> {
    /// The call that made the frame whose rbp is `rbp`; `None` when no frame can be there.
    fn call_at(&mut self, rbp: u64) -> Option<Call> {
        let back = self.stack.word(rbp.checked_add(8)?)?;
        if !self.space.is_code(back) {
            return None;
        }
        let caller = self.known.row(self.space, back.checked_sub(1)?)?;
        // A signal handler was called by the kernel, which leaves no instruction behind.
        let call = if caller.signal { Call::Indirect } else { self.known.call(self.space, back)? };
        // A caller that needs its rbp must find it further up.
        let saved = self.stack.word(rbp)?;
        (!caller.cfa_is_on(RBP) || saved > rbp).then_some(call)
    }

    /// Whether the function at `start` hands its call on to `function`: by a jump, which leaves no trace on the
    /// stack.
    fn jumps(&mut self, start: u64, function: u64) -> bool {
        let Some(row) = self.known.row(self.space, start).filter(|row| row.function.0 == start) else { return false };
        let length = row.function.1.saturating_sub(start).min(MAX_BODY) as usize;
        let mut code = vec![0; length];
        if self.space.memory.read_exact(RemoteAddr(start), &mut code).is_err() {
            return false;
        }
        let to = |at: usize| {
            let relative = code.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes)?;
            Some(start.wrapping_add(at as u64 + 4).wrapping_add_signed(i64::from(relative)))
        };
        (0..length).any(|at| match code[at] {
            0xe9 => to(at + 1) == Some(function),
            0x0f if code.get(at + 1).is_some_and(|next| next & 0xf0 == 0x80) => to(at + 2) == Some(function),
            _ => false,
        })
    }

    /// The rbp of the frames from `rbp` (of `function`) outwards, as far as they need one; `None` when one
    /// of them was not called by the frame around it.
    fn chain(&mut self, mut rbp: u64, mut function: u64) -> Option<Vec<u64>> {
        let mut chain = Vec::new();
        while chain.len() < PROOF {
            match self.call_at(rbp)? {
                Call::To(target) if target != function => return None,
                _ => chain.push(rbp),
            }
            let back = self.stack.word(rbp.checked_add(8)?)?;
            let caller = self.known.row(self.space, back.checked_sub(1)?)?;
            if !is_standard(&caller) {
                break;
            }
            (rbp, function) = (self.stack.word(rbp)?, caller.function.0);
        }
        Some(chain)
    }
}

/// Bytes between rbp and sp that the function beginning at `start` sets up, by its first instructions:
/// `push %rbp; mov %rsp,%rbp`, more pushes, `sub $n,%rsp`. `None` when it begins in another way.
fn prologue(space: &Space<'_>, start: u64) -> Option<u64> {
    let code: [u8; 32] = space.code(start)?;
    frame_size(&code)
}

/// The sizes that a frame has in the course of its function's first instructions, whatever is done between
/// them; the last one before the body is the right one, but where that begins is not known.
fn frame_sizes(code: &[u8]) -> Vec<u64> {
    let mut sizes = Vec::new();
    let (mut at, mut size) = (0, None);
    while let Some(insn) = code.get(at..).and_then(decode) {
        at += usize::from(insn.len);
        match (insn.op, insn.dst, insn.src) {
            (Op::Mov, Operand::Reg(FRAME), Operand::Reg(RSP)) => size = Some(0u64),
            (Op::Push, ..) => size = size.map(|size| size + 8),
            (Op::Alu(Alu::Sub), Operand::Reg(RSP), Operand::Imm(bytes @ 1..)) => {
                size = size.and_then(|size| size.checked_add(bytes as u64));
            }
            (Op::Ret | Op::Call, ..) => break,
            _ => continue,
        }
        sizes.extend(size);
    }
    sizes.dedup();
    sizes
}

fn frame_size(code: &[u8]) -> Option<u64> {
    let mut rest = code;
    rest = rest.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(rest);
    rest = rest.strip_prefix(&[0x55])?;
    rest = rest.strip_prefix(&[0x48, 0x89, 0xe5]).or_else(|| rest.strip_prefix(&[0x48, 0x8b, 0xec]))?;
    let mut size = 0;
    loop {
        rest = match rest {
            [0x50..=0x57, rest @ ..] | [0x41, 0x50..=0x57, rest @ ..] => rest,
            [0x48, 0x83, 0xec, n, ..] => return Some(size + u64::from(*n)).filter(|_| *n < 0x80),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => {
                return Some(size + u64::from(u32::from_le_bytes([*a, *b, *c, *d])));
            }
            // A frame without locals.
            _ => return Some(size),
        };
        size += 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_frames() {
        let cases: [(&[u8], Option<u64>); 6] = [
            (&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x90], Some(0x20)),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x18], Some(0x20)),
            (&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x81, 0xec, 0, 1, 0, 0], Some(0x110)),
            (&[0x55, 0x48, 0x89, 0xe5, 0xb8, 0, 0, 0, 0], Some(0)),
            (&[0x53, 0x48, 0x83, 0xec, 0x20], None),
            (&[], None),
        ];
        for (code, size) in cases {
            assert_eq!(frame_size(code), size, "{code:x?}");
        }
    }

    #[test]
    fn prologues_with_other_things_between() {
        // push rbp; mov rsp,rbp; push r13; push r12; mov esi,r12d; push rbx; sub 0x28,rsp; test rcx,rcx; ret
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x55, 0x41, 0x54, 0x41, 0x89, 0xf4, 0x53, 0x48, 0x83,
            0xec, 0x28, 0x48, 0x85, 0xc9, 0xc3, 0x53,
        ];
        assert_eq!(frame_sizes(&code), [0, 8, 16, 24, 64]);
        assert!(frame_sizes(&[0x53, 0x48, 0x83, 0xec, 0x20, 0xc3]).is_empty(), "a frame without rbp");
        assert!(frame_sizes(&[]).is_empty());
    }
}
