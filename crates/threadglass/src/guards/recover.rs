//! A register of a thread that was not stopped, from what it gave to the kernel.
//!
//! Rust's locks wait by `syscall(SYS_futex, word, ..)`, a function that saves no register. The word's address
//! is known, and the code before the call says in which register it still is.

use super::code::Code;
use super::insn::{Op, Operand, RSP};
use super::pages::Pages;

/// Bytes of a function that are decoded to find its last instructions before a call.
const MAX_FUNCTION: u64 = 64 << 10;
/// Instructions before the call that are looked at.
const REACH: usize = 24;
/// Number of rsi, the second argument, in the encoding's order.
const RSI: u8 = 6;

/// The register, of those that calls preserve, that the second argument of the call before `back` was made
/// from, and how far the argument is from it. `start`: where the function begins.
pub(super) fn argument(code: &mut Code<'_>, pages: &mut Pages<'_>, start: u64, back: u64) -> Option<(u8, i64)> {
    if back.checked_sub(start)? > MAX_FUNCTION {
        return None;
    }
    let mut block = Vec::new();
    let mut at = start;
    while at < back {
        let insn = code.insn(pages, at)?;
        at = at.checked_add(u64::from(insn.len))?;
        if matches!(insn.op, Op::Jmp | Op::Jcc(_) | Op::Ret | Op::Stop | Op::Call) && at < back {
            block.clear();
        } else {
            block.push(insn);
        }
    }
    let (call, before) = block.split_last().filter(|(call, _)| at == back && call.op == Op::Call)?;
    let _ = call;
    let mut before = before.iter().rev().take(REACH);
    let mut changed = Vec::new();
    let (register, distance) = loop {
        let insn = before.next()?;
        match (insn.op, insn.dst, insn.src) {
            (Op::Mov, Operand::Reg(RSI), Operand::Reg(register)) if insn.size == 8 => break (register, 0),
            (Op::Lea, Operand::Reg(RSI), Operand::Mem(mem)) if mem.index.is_none() && !mem.rip => {
                break (mem.base?, mem.disp);
            }
            (_, Operand::Reg(RSI), _) => return None,
            (_, Operand::Reg(other), _) => changed.push(other),
            _ => {}
        }
    };
    let preserved = matches!(register, 3 | 5 | 12..=15) && register != RSP;
    (preserved && !changed.contains(&register)).then_some((register, distance))
}
