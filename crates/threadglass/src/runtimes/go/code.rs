//! Variables of Go's runtime, by the code of the functions that use them: for programs without symbols.

use crate::RemoteAddr;
use crate::arch::insn::{Insn, Mem, Op, Operand, decode};

/// The instructions of `code`, which is at `start`, with the address behind each.
fn instructions(code: &[u8], start: u64) -> impl Iterator<Item = (u64, Insn)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let insn = decode(code.get(at..)?)?;
        at += usize::from(insn.len.max(1));
        Some((start.wrapping_add(at as u64), insn))
    })
}

/// The variable that `operand` is, of an instruction that ends at `next`.
fn variable(operand: Operand, next: u64) -> Option<RemoteAddr> {
    match operand {
        Operand::Mem(Mem { pc_relative: true, disp, .. }) => Some(RemoteAddr(next.wrapping_add_signed(disp))),
        _ => None,
    }
}

/// The last two variables that are exchanged with a register, all 8 bytes of them.
pub(super) fn last_two_exchanged(code: &[u8], start: u64) -> Option<(RemoteAddr, RemoteAddr)> {
    // What each register points at.
    let mut pointers = [None; 16];
    let mut found = Vec::new();
    for (next, insn) in instructions(code, start) {
        let exchanged = match insn.dst {
            Operand::Mem(Mem { base: Some(base), index: None, disp: 0, .. }) => pointers[usize::from(base & 15)],
            operand => variable(operand, next),
        };
        if insn.op == Op::Xchg && insn.size == 8 {
            found.extend(exchanged);
        }
        if let Operand::Reg(register) = insn.dst {
            pointers[usize::from(register & 15)] = variable(insn.src, next).filter(|_| insn.op == Op::Lea);
        }
    }
    let [.., list, length] = found.as_slice() else { return None };
    Some((*list, *length))
}

/// The variables whose addresses are taken, in the order of the code.
pub(super) fn addresses_taken(code: &[u8], start: u64) -> impl Iterator<Item = RemoteAddr> {
    let taken = instructions(code, start).filter(|(_, insn)| insn.op == Op::Lea);
    taken.filter_map(|(next, insn)| variable(insn.src, next))
}

/// The first variable of 4 bytes that is read into a register.
pub(super) fn first_number_read(code: &[u8], start: u64) -> Option<RemoteAddr> {
    let reads = |insn: &Insn| match insn.op {
        Op::Mov => insn.size == 4 && matches!(insn.dst, Operand::Reg(_)),
        Op::Movsx(4) => true,
        _ => false,
    };
    instructions(code, start).filter(|(_, insn)| reads(insn)).filter_map(|(next, insn)| variable(insn.src, next)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_by_code() {
        // lea rcx, [rip+0x10]; xchg [rcx], rbx; lea rdx, [rip+0x20]; xchg [rdx], rcx; ret
        let code = [
            &[0x48, 0x8d, 0x0d, 0x10, 0, 0, 0, 0x48, 0x87, 0x19][..],
            &[0x48, 0x8d, 0x15, 0x20, 0, 0, 0, 0x48, 0x87, 0x0a, 0xc3],
        ]
        .concat();
        let (list, length) = (RemoteAddr(0x1017), RemoteAddr(0x1031));
        assert_eq!(last_two_exchanged(&code, 0x1000), Some((list, length)));
        assert_eq!(addresses_taken(&code, 0x1000).collect::<Vec<_>>(), [list, length]);
        assert_eq!(last_two_exchanged(&code[..12], 0x1000), None);
        // mov edx, [rip+0x204829]
        assert_eq!(first_number_read(&[0x8b, 0x15, 0x29, 0x48, 0x20, 0], 0x1000), Some(RemoteAddr(0x20582f)));
    }
}
