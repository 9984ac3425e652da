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

/// How far up a frame is searched for. Larger ones than this are rare, and each word is one more chance
/// to take an old return address for a new one.
const REACH: u64 = 256 << 10;

/// The value that rbp must have in the frame with `registers`; `None` when nothing convinces.
pub(super) fn rbp(
    space: &Space<'_>,
    known: &mut Known,
    stack: &mut StackWords<'_>,
    registers: &Registers,
    row: &Row,
    start_routine: Option<u64>,
) -> Option<u64> {
    // The common rule alone: caller's rbp at CFA-16, return address at CFA-8, CFA 16 above rbp.
    let standard = matches!(row.cfa, Cfa::Register(RBP, 16))
        && matches!(row.rule(RBP), Some(Rule::At(-16)))
        && matches!(row.rule(RETURN), Some(Rule::At(-8)));
    if !standard {
        return None;
    }
    let sp = registers.sp.0;
    let least = prologue(space, row.function.0);
    let mut judge = |stack: &mut StackWords<'_>, rbp: u64| {
        let back = stack.word(rbp.checked_add(8)?)?;
        if !space.is_code(back) {
            return None;
        }
        let call = known.call(space, back)?;
        let saved = stack.word(rbp)?;
        let caller = known.row(space, back - 1)?;
        // A caller that needs its rbp must find it further up.
        if caller.cfa_is_on(RBP) && saved <= rbp {
            return None;
        }
        Some(call)
    };
    // The prologue says how large the frame is; then one place is left, and any call there will do.
    if let Some(expected) = least.and_then(|size| sp.checked_add(size)) {
        match judge(stack, expected) {
            Some(Call::To(target)) if target == row.function.0 => return Some(expected),
            Some(Call::Indirect) => return Some(expected),
            _ => {}
        }
    }
    // Otherwise (arguments pushed for a call, arrays of variable size) only a call of this very function
    // convinces, and only when there is one.
    let from = sp.checked_add(least.unwrap_or(0))?.checked_next_multiple_of(16)?;
    let mut found = None;
    let mut at = from;
    while at - from < REACH {
        // The end of the stack.
        if stack.word(at.checked_add(8)?).is_none() {
            break;
        }
        let reached = match judge(stack, at) {
            Some(Call::To(target)) => target == row.function.0,
            Some(Call::Indirect) => start_routine == Some(row.function.0),
            None => false,
        };
        if reached && found.replace(at).is_some() {
            return None;
        }
        at = at.checked_add(16)?;
    }
    found
}

/// Bytes between rbp and sp that the function beginning at `start` sets up, by its first instructions:
/// `push %rbp; mov %rsp,%rbp`, more pushes, `sub $n,%rsp`. `None` when it begins in another way.
fn prologue(space: &Space<'_>, start: u64) -> Option<u64> {
    let code: [u8; 32] = space.code(start)?;
    frame_size(&code)
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
}
