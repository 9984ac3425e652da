//! How functions begin that keep a frame pointer.

use super::code::ENDBR64;
use super::insn::register::{FRAME_POINTER, STACK_POINTER};
use super::insn::{Alu, Op, Operand, decode};

/// The sizes that a frame has in the course of its function's first instructions, whatever is done between
/// them; the last one before the body is the right one, but where that begins is not known.
pub(crate) fn frame_sizes(code: &[u8]) -> Vec<u64> {
    let mut sizes = Vec::new();
    let (mut at, mut size) = (0, None);
    while let Some(insn) = code.get(at..).and_then(decode) {
        at += usize::from(insn.len);
        match (insn.op, insn.dst, insn.src) {
            (Op::Mov, Operand::Reg(FRAME_POINTER), Operand::Reg(STACK_POINTER)) => size = Some(0u64),
            (Op::Push, ..) => size = size.map(|size| size + 8),
            (Op::Alu(Alu::Sub), Operand::Reg(STACK_POINTER), Operand::Imm(bytes @ 1..)) => {
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

/// Bytes between frame pointer and stack pointer that a function sets up by its first instructions:
/// `push %rbp; mov %rsp,%rbp`, more pushes, `sub $n,%rsp`. `None` when it begins in another way.
pub(crate) fn frame_size(code: &[u8]) -> Option<u64> {
    let mut rest = code;
    rest = rest.strip_prefix(&ENDBR64).unwrap_or(rest);
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

/// How far a function that keeps a frame pointer has come with its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramePhase {
    /// Nothing of it is there, or all is taken back: the return address is on top of the stack.
    Bare,
    /// The caller's frame pointer lies above that, and is still in its register.
    Saved,
    /// The frame pointer is its own.
    Set,
}

/// How far such a function is that is about to execute `code`.
pub(crate) fn frame_phase(code: &[u8]) -> FramePhase {
    match code.strip_prefix(&ENDBR64).unwrap_or(code) {
        // push %rbp; ret, alone, with a count, and after a prefix that old processors want.
        [0x55 | 0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..] => FramePhase::Bare,
        // mov %rsp,%rbp
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => FramePhase::Saved,
        _ => FramePhase::Set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_frames() {
        let cases: [(&[u8], FramePhase); 7] = [
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48], FramePhase::Bare),
            (&[0x55, 0x48, 0x89], FramePhase::Bare),
            (&[0x48, 0x89, 0xe5, 0x53], FramePhase::Saved),
            (&[0x48, 0x83, 0xec, 0x20], FramePhase::Set),
            (&[0xc9, 0xc3], FramePhase::Set),
            (&[0x5d, 0xc3], FramePhase::Set),
            (&[0xc3], FramePhase::Bare),
        ];
        for (code, phase) in cases {
            assert_eq!(frame_phase(code), phase, "{code:x?}");
        }
    }

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
