//! Which frames can have to do with a lock at all: its address must come from somewhere.

use super::WantedLock;
use super::code::{Code, MAX_FUNCTION};
use crate::arch::insn::{Op, Operand};
use crate::by_number::ByAddress;

/// How far below a lock an address may be: of the structure that it is in.
pub(super) const NEAR: u64 = 4096;
/// Addresses that are remembered, of all functions.
const MAX_REFERENCES: usize = 2 << 20;
/// Numbers below this are no addresses.
const LOWEST: u64 = 1 << 16;

/// Whether `value` can lead to `lock`.
pub(super) fn is_near(value: u64, lock: &WantedLock) -> bool {
    value.wrapping_sub(lock.address.0.wrapping_sub(NEAR)) < NEAR.saturating_add(lock.size.min(NEAR))
}

/// By function: the addresses that its code has in it, and what is at them.
#[derive(Default)]
pub(super) struct References {
    found: ByAddress<Vec<u64>>,
    /// How many there are in all.
    count: usize,
}

impl References {
    /// Those of the function from `start` to `end`.
    pub(super) fn of(&mut self, code: &mut Code<'_>, (start, end): (u64, u64)) -> &[u64] {
        if self.count > MAX_REFERENCES {
            (self.found, self.count) = (ByAddress::default(), 0);
        }
        let count = &mut self.count;
        self.found.entry(start).or_insert_with(|| {
            let found = find(code, start, end);
            *count += found.len();
            found
        })
    }
}

fn find(code: &mut Code<'_>, start: u64, end: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut at = start;
    while at < end && at - start < MAX_FUNCTION {
        let Some(insn) = code.insn(at) else { break };
        at = at.wrapping_add(u64::from(insn.len));
        if matches!(insn.op, Op::Call | Op::Jmp | Op::Jcc(_)) {
            continue;
        }
        for operand in [insn.dst, insn.src] {
            match operand {
                Operand::Mem(mem) if mem.pc_relative => found.push(at.wrapping_add_signed(mem.disp)),
                Operand::Mem(mem) if mem.base.is_none() && !mem.segment => found.push(mem.disp as u64),
                Operand::Imm(value) => {
                    found.push(value as u64 & if insn.size == 4 { u64::from(u32::MAX) } else { u64::MAX })
                }
                _ => {}
            }
        }
    }
    found.retain(|addr| *addr >= LOWEST);
    found.sort_unstable();
    found.dedup();
    let pointers: Vec<u64> =
        found.iter().filter_map(|addr| code.pages.word(addr & !7)).filter(|word| *word >= LOWEST).collect();
    found.extend(pointers);
    found
}
