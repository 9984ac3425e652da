//! How a frame is undone whose function has no unwind rule: as the function itself undoes it.
//!
//! A C library may come without tables (musl's does). Its functions still end in a return, before which they take from the
//! stack what they have put there. So the code is followed from where the thread stands to the returns that it can reach,
//! with nothing but the stack pointer and the places from which registers are restored. Calls in between leave both alone.

use super::call::through_stubs;
use super::cfi::{Cfa, Rule, UnwindRow};
use super::space::Space;
use crate::RemoteAddr;
use crate::arch::insn::table::{DWARF, PRESERVED};
use crate::arch::insn::{Alu, Insn, LONGEST, Op, Operand, decode, register};
use crate::arch::{FRAME_POINTER, RETURN, STACK_POINTER};
use std::collections::HashSet;

/// Instructions that are followed from one place.
const STEPS: usize = 2_000;
/// Ways that wait to be gone.
const MAX_WAYS: usize = 64;
/// Returns with different frames. More are the mistake of a call that does not come back.
const MAX_FRAMES: usize = 4;
/// Instructions of a function that only stops the program.
const SHORT: usize = 4;
/// Bytes of code that are read at once.
const CHUNK: usize = 256;

/// What following the code has found.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowedFrame {
    /// The rules by which the frame may be undone. More than one where a call in between may not come back.
    pub(super) rows: Vec<UnwindRow>,
    /// Whether all ways end the thread or the process, where nothing comes after: the thread began here.
    pub(super) is_start: bool,
}

/// Where the stack pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Base {
    Stack,
    Frame,
}

/// Where a preserved register of the caller is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Same,
    /// Restored from there.
    At(Base, i64),
    Lost,
}

#[derive(Clone, Copy)]
struct Way {
    pc: u64,
    sp: (Base, i64),
    kept: [Kept; PRESERVED.len()],
    /// Whether a system call was made, which may be the one that ends the thread.
    calls_kernel: bool,
}

/// Follows the code from `pc` on.
pub(super) fn follow(space: &Space<'_>, pc: u64) -> FollowedFrame {
    let mut follower = Follower { space, chunk: (0, Vec::new()), seen: HashSet::new(), ways: Vec::new(), steps: 0 };
    let kept = [Kept::Same; PRESERVED.len()];
    follower.ways.push(Way { pc, sp: (Base::Stack, 0), kept, calls_kernel: false });
    let mut found = FollowedFrame { rows: Vec::new(), is_start: true };
    while let Some(way) = follower.ways.pop() {
        match follower.go(way) {
            End::Return(way) => {
                found.is_start = false;
                add_row(&mut found.rows, &way);
            }
            // Nothing but what stops the processor comes after the program's first call.
            End::Stop(at, calls_kernel) => found.is_start &= calls_kernel || at == pc,
            End::Lost => found.is_start = false,
        }
        if found.rows.len() > MAX_FRAMES {
            return FollowedFrame::default();
        }
    }
    found
}

/// How a way ends.
enum End {
    Return(Way),
    /// Nothing comes after this place; whether a system call was made before it.
    Stop(u64, bool),
    /// It leads to where ways have been, or cannot be followed.
    Lost,
}

struct Follower<'s, 'a> {
    space: &'s Space<'a>,
    /// Code that was read last, and where it is.
    chunk: (u64, Vec<u8>),
    seen: HashSet<(u64, Base, i64)>,
    ways: Vec<Way>,
    steps: usize,
}

impl Follower<'_, '_> {
    fn go(&mut self, mut way: Way) -> End {
        loop {
            self.steps += 1;
            if self.steps > STEPS || !self.seen.insert((way.pc, way.sp.0, way.sp.1)) {
                return End::Lost;
            }
            let Some(insn) = self.insn(way.pc) else { return End::Lost };
            let at = way.pc;
            let next = at.wrapping_add(u64::from(insn.len));
            way.pc = next;
            way.calls_kernel |= insn.op == Op::Syscall;
            match (insn.op, insn.src) {
                (Op::Ret, _) => return End::Return(way),
                (Op::Stop, _) => return End::Stop(at, way.calls_kernel),
                (Op::Jmp, Operand::Imm(by)) => way.pc = next.wrapping_add_signed(by),
                (Op::Jmp, _) => return End::Lost,
                (Op::Call, Operand::Imm(by)) if self.never_returns(next.wrapping_add_signed(by)) => return End::Lost,
                (Op::Jcc(_), Operand::Imm(by)) if self.ways.len() < MAX_WAYS => {
                    self.ways.push(Way { pc: next.wrapping_add_signed(by), ..way });
                }
                _ => {
                    if way.step(&insn).is_none() {
                        return End::Lost;
                    }
                }
            }
        }
    }

    /// Whether the function at `target` does nothing but stop the program, as one does that finds a stack overwritten.
    fn never_returns(&mut self, target: u64) -> bool {
        let mut at = through_stubs(self.space, target);
        for _ in 0..SHORT {
            let Some(insn) = self.insn(at) else { return false };
            match insn.op {
                Op::Stop => return true,
                Op::Ret | Op::Jmp | Op::Jcc(_) | Op::Call => return false,
                _ => at = at.wrapping_add(u64::from(insn.len)),
            }
        }
        false
    }

    fn insn(&mut self, at: u64) -> Option<Insn> {
        let (start, bytes) = &self.chunk;
        let from = at.checked_sub(*start).filter(|from| *from + LONGEST as u64 <= bytes.len() as u64);
        let from = match from {
            Some(from) => from as usize,
            None => {
                let bytes = self.space.memory.read_up_to(RemoteAddr(at), CHUNK).ok()?;
                self.chunk = (at, bytes);
                0
            }
        };
        decode(self.chunk.1.get(from..)?).filter(|_| self.space.is_code(at))
    }
}

impl Way {
    /// What an instruction that goes on to the next one does to the stack pointer and to preserved registers. `None` where
    /// the stack pointer is not known any more.
    fn step(&mut self, insn: &Insn) -> Option<()> {
        let (base, at) = self.sp;
        match (insn.op, insn.dst, insn.src) {
            (Op::Push, ..) => self.sp.1 = at.checked_sub(8)?,
            (Op::Pop, Operand::Reg(register), _) => {
                self.set(register, Kept::At(base, at));
                self.sp.1 = at.checked_add(8)?;
            }
            (Op::Leave, ..) => {
                self.sp = (self.frame()?, 8);
                self.set(register::FRAME_POINTER, Kept::At(Base::Frame, 0));
            }
            (Op::Call | Op::Syscall | Op::Nop, ..) => {}
            (_, Operand::Reg(register::STACK_POINTER), src) => self.sp = self.moved(insn.op, src)?,
            (Op::Alu(Alu::Cmp) | Op::Test, ..) => {}
            (_, Operand::Reg(register), _) => self.set(register, Kept::Lost),
            _ => {}
        }
        if insn.op == Op::Xchg
            && let Operand::Reg(register) = insn.src
        {
            self.set(register, Kept::Lost);
        }
        Some(())
    }

    /// The stack pointer after an instruction that sets it.
    fn moved(&self, op: Op, src: Operand) -> Option<(Base, i64)> {
        let (base, at) = self.sp;
        Some(match (op, src) {
            (Op::Alu(Alu::Add), Operand::Imm(by)) => (base, at.checked_add(by)?),
            (Op::Alu(Alu::Sub), Operand::Imm(by)) => (base, at.checked_sub(by)?),
            (Op::Alu(Alu::Cmp) | Op::Test, _) => (base, at),
            (Op::Mov, Operand::Reg(register::FRAME_POINTER)) => (self.frame()?, 0),
            (Op::Lea, Operand::Mem(mem)) if mem.index.is_none() && !mem.segment && !mem.pc_relative => match mem.base {
                Some(register::STACK_POINTER) => (base, at.checked_add(mem.disp)?),
                Some(register::FRAME_POINTER) => (self.frame()?, mem.disp),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Places counted from the frame pointer, while it is what it was.
    fn frame(&self) -> Option<Base> {
        let index = PRESERVED.iter().position(|number| *number == usize::from(register::FRAME_POINTER))?;
        (self.kept[index] == Kept::Same).then_some(Base::Frame)
    }

    fn set(&mut self, register: u8, kept: Kept) {
        if let Some(index) = PRESERVED.iter().position(|number| *number == usize::from(register)) {
            self.kept[index] = kept;
        }
    }
}

/// Adds what a way to a return tells; where another way returns from the same frame, what both tell.
fn add_row(rows: &mut Vec<UnwindRow>, way: &Way) {
    let (base, at) = way.sp;
    let Some(top) = at.checked_add(8) else { return };
    let on = if base == Base::Stack { STACK_POINTER } else { FRAME_POINTER };
    let rule = |kept: &Kept| match kept {
        Kept::Same => Rule::Same,
        Kept::At(from, at) if *from == base => at.checked_sub(top).map_or(Rule::Undefined, Rule::At),
        Kept::At(..) | Kept::Lost => Rule::Undefined,
    };
    let rules = PRESERVED.iter().zip(&way.kept).map(|(number, kept)| (DWARF[*number], rule(kept)));
    let mut rules: Vec<(u16, Rule)> = rules.collect();
    let same = rows.iter_mut().find(|row| matches!(row.cfa, Cfa::Register(number, by) if (number, by) == (on, top)));
    let Some(row) = same else {
        rules.push((RETURN, Rule::At(-8)));
        rows.push(UnwindRow { function: (0, 0), lsda: None, cfa: Cfa::Register(on, top), rules, signal: false });
        return;
    };
    for ((_, known), (_, new)) in row.rules.iter_mut().zip(rules) {
        let agree = match (&known, &new) {
            (Rule::Same, Rule::Same) => true,
            (Rule::At(a), Rule::At(b)) => a == b,
            _ => false,
        };
        if !agree {
            *known = Rule::Undefined;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    fn followed(code: &[u8]) -> FollowedFrame {
        let mut bytes = code.to_vec();
        bytes.resize(code.len() + 64, 0xcc);
        let mut memory = Bytes::default();
        let end = RemoteAddr(0x1000 + bytes.len() as u64);
        memory.map(RemoteAddr(0x1000), bytes);
        follow(&Space::new(&memory, &[(RemoteAddr(0x1000), end)]), 0x1000)
    }

    fn only(code: &[u8]) -> UnwindRow {
        let found = followed(code);
        assert_eq!(found.rows.len(), 1, "{found:?}");
        found.rows[0].clone()
    }

    #[test]
    fn what_is_taken_from_the_stack_before_the_return() {
        // call ..; add $0x18,%rsp; pop %rbx; pop %rbp; pop %r12; ret
        let row = only(&[0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0x41, 0x5c, 0xc3]);
        assert!(matches!(row.cfa, Cfa::Register(STACK_POINTER, 0x38)), "{row:?}");
        assert!(matches!(row.rule(3), Some(Rule::At(-32))) && matches!(row.rule(12), Some(Rule::At(-16))), "{row:?}");
        assert!(matches!(row.rule(13), Some(Rule::Same)), "{row:?}");
    }

    #[test]
    fn a_frame_pointer() {
        // mov $1,%ebx; leave; ret
        let row = only(&[0xbb, 1, 0, 0, 0, 0xc9, 0xc3]);
        assert!(matches!(row.cfa, Cfa::Register(FRAME_POINTER, 16)), "{row:?}");
        assert!(matches!(row.rule(3), Some(Rule::Undefined)), "overwritten: {row:?}");
        assert!(matches!(row.rule(FRAME_POINTER), Some(Rule::At(-16))), "{row:?}");
    }

    #[test]
    fn all_ways() {
        // je +2; pop %rbx; ret; pop %rcx; ret
        let row = only(&[0x74, 2, 0x5b, 0xc3, 0x59, 0xc3]);
        assert!(matches!(row.rule(3), Some(Rule::Undefined)), "restored on one way only: {row:?}");
        // je +3; pop %rbx; nop; ret; ret
        assert_eq!(followed(&[0x74, 3, 0x5b, 0x90, 0xc3, 0xc3]).rows.len(), 2, "two frames");
        // xor %eax,%eax; syscall; hlt
        let start = followed(&[0x31, 0xc0, 0x0f, 0x05, 0xf4]);
        assert!(start.is_start && start.rows.is_empty());
        // jmp *%rax
        assert!(!followed(&[0xff, 0xe0]).is_start);
        // and $-16,%rsp; ret
        assert!(followed(&[0x48, 0x83, 0xe4, 0xf0, 0xc3]).rows.is_empty());
    }
}
