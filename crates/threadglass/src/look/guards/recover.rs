//! A register of a thread that was not stopped, from what it gave to the kernel.
//!
//! Rust's locks wait by libc's `syscall`, a function that saves no register. The word's address
//! is known, and the code before the call says in which register it still is. Where the program contains libc, that function
//! is one frame more, and is known by its first argument. Likewise of a function that takes the lock for which the thread
//! waits.

use super::code::{Code, MAX_FUNCTION};
use super::machine::Machine;
use super::pages::Pages;
use crate::arch::insn::register::STACK_POINTER;
use crate::arch::insn::table::FIRST_ARGUMENT;
use crate::arch::insn::{Insn, Op, Operand, table};
use crate::arch::syscall;

/// Instructions before the call that are looked at.
const REACH: usize = 24;

/// The register, of those that calls preserve, that the argument in the register `which` of the call at the end of `block`
/// was made from, and how far the argument is from it.
pub(super) fn argument(block: &[(u64, Insn)], which: usize) -> Option<(u8, i64)> {
    let is_argument = |register: u8| usize::from(register) == which;
    let (_, before) = block.split_last()?;
    let mut before = before.iter().rev().take(REACH);
    let mut changed = Vec::new();
    let (register, distance) = loop {
        let (_, insn) = before.next()?;
        match (insn.op, insn.dst, insn.src) {
            (Op::Mov, Operand::Reg(to), Operand::Reg(from)) if is_argument(to) && insn.size == 8 => break (from, 0),
            (Op::Lea, Operand::Reg(to), Operand::Mem(mem))
                if is_argument(to) && mem.index.is_none() && !mem.pc_relative =>
            {
                break (mem.base?, mem.disp);
            }
            (_, Operand::Reg(to), _) if is_argument(to) => return None,
            (_, Operand::Reg(other), _) => changed.push(other),
            _ => {}
        }
    };
    (is_preserved(register) && !changed.contains(&register)).then_some((register, distance))
}

/// Whether the call at the end of `block` is given the number of the system call by which threads sleep on a word: then the
/// function passes its arguments on to the kernel, as `syscall` does.
pub(super) fn is_for_futex(block: &[(u64, Insn)]) -> bool {
    let Some((_, before)) = block.split_last() else { return false };
    let sets = |insn: &&Insn| matches!(insn.dst, Operand::Reg(to) if usize::from(to) == FIRST_ARGUMENT);
    let last = before.iter().rev().take(REACH).map(|(_, insn)| insn).find(sets);
    last.is_some_and(|insn| insn.op == Op::Mov && insn.src == Operand::Imm(syscall::FUTEX))
}

/// The instructions of the function from `start` that lead straight to the call before `back`; that is the last.
pub(super) fn block_before(code: &mut Code<'_>, start: u64, back: u64) -> Option<Vec<(u64, Insn)>> {
    if back.checked_sub(start)? > MAX_FUNCTION {
        return None;
    }
    let mut block = Vec::new();
    let mut at = start;
    while at < back {
        let insn = code.insn(at)?;
        let next = at.checked_add(u64::from(insn.len))?;
        if matches!(insn.op, Op::Jmp | Op::Jcc(_) | Op::Ret | Op::Stop | Op::Call) && next < back {
            block.clear();
        } else {
            block.push((at, insn));
        }
        at = next;
    }
    // No more of it is looked at than this.
    let block = block.split_off(block.len().saturating_sub(REACH + 1));
    (at == back && block.last().is_some_and(|(_, last)| last.op == Op::Call)).then_some(block)
}

/// Brings `state`, which has the registers that a function preserves as they are at a call, to the last
/// instruction of `block`: the other registers are set as the block sets them.
///
/// What the block does to preserved registers and to memory has happened already, and is not done again.
pub(super) fn set_up(state: &mut Machine, pages: &mut Pages<'_>, block: &[(u64, Insn)]) {
    let Some(((at, _), before)) = block.split_last() else { return };
    for (at, insn) in &before[before.len().saturating_sub(REACH)..] {
        state.pc = *at;
        match (insn.op, insn.dst, insn.src) {
            (Op::Push | Op::Pop | Op::Leave, ..) | (_, Operand::Mem(_), _) => {}
            (op, Operand::Reg(register), src) if is_preserved(register) || register == STACK_POINTER => {
                // A copy was made: where the copy is known, so is what it was made from.
                if let (Op::Mov, Operand::Reg(from), 8) = (op, src, insn.size)
                    && !is_preserved(from)
                    && state.regs[usize::from(from)].get(8).is_none()
                {
                    state.regs[usize::from(from)] = state.regs[usize::from(register)];
                }
            }
            _ => {
                state.step(pages, insn);
            }
        }
    }
    state.pc = *at;
}

fn is_preserved(register: u8) -> bool {
    table::PRESERVED.contains(&usize::from(register))
}
