//! Code as bytes: calls, jumps and short sequences that are recognised without decoding what is around them.

use crate::RemoteAddr;

/// Marks where an indirect jump may lead.
pub(super) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `syscall; ret`.
#[cfg(feature = "agent")]
pub(crate) const SYSCALL_RETURN: &[u8] = &[0x0f, 0x05, 0xc3];
/// `mov rax, 15; syscall`: the end of every signal handler.
#[cfg(feature = "agent")]
pub(crate) const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// The longest call instruction: `call *%fs:0x12345678`.
pub(crate) const LONGEST_CALL: usize = 8;
/// The longest jump of the procedure linkage table.
pub(crate) const LONGEST_STUB: usize = 11;

fn i32_at(code: &[u8], at: usize) -> Option<i64> {
    Some(i32::from_le_bytes(*code.get(at..)?.first_chunk()?).into())
}

/// Where the system call begins that goes on at `after`: at `mov $number,%eax; syscall`. `read` reads code.
pub(crate) fn call_before(read: impl FnOnce(u64, &mut [u8]) -> usize, after: u64) -> Option<u64> {
    let (mut code, at) = ([0; 7], after.checked_sub(7)?);
    (read(at, &mut code) == code.len() && code[0] == 0xb8 && code[5..] == [0x0f, 0x05]).then_some(at)
}

/// Where the call that returns to `back` leads, if `code` before that ends in `call rel32`.
pub(crate) fn direct_call(code: &[u8; LONGEST_CALL], back: u64) -> Option<u64> {
    (code[3] == 0xe8).then(|| i32_at(code, 4)).flatten().map(|to| back.wrapping_add_signed(to))
}

/// Where the target of the call is kept that returns to `back`, if `code` before that ends in `call *disp32(%rip)`: a slot
/// of the global offset table, which stays as it is once resolved.
pub(crate) fn call_by_slot(code: &[u8; LONGEST_CALL], back: u64) -> Option<u64> {
    (code[2..4] == [0xff, 0x15]).then(|| i32_at(code, 4)).flatten().map(|to| back.wrapping_add_signed(to))
}

/// Whether the bytes end in `call *operand` of any form.
pub(crate) fn ends_in_indirect_call(code: &[u8; LONGEST_CALL]) -> bool {
    (2..=7).any(|length| {
        let at = code.len() - length;
        let (opcode, modrm) = (code[at], code[at + 1]);
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let sib = mode != 3 && rm == 4;
        let displacement = match mode {
            0 if rm == 5 || (sib && length > 2 && code[at + 2] & 7 == 5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        opcode == 0xff && modrm >> 3 & 7 == 2 && length == 2 + usize::from(sib) + displacement
    })
}

/// The slot through which the stub at `addr` jumps, and the address behind the jump.
pub(crate) fn slot_of_stub(code: &[u8; LONGEST_STUB], addr: u64) -> Option<(u64, u64)> {
    // `endbr64` and the `bnd` prefix may stand in front of `jmp *disp32(%rip)`.
    let mut at = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    at += usize::from(code[at] == 0xf2);
    if code.get(at..at + 2)? != [0xff, 0x25] {
        return None;
    }
    let next = addr.wrapping_add(at as u64 + 6);
    Some((next.wrapping_add_signed(i32_at(code, at + 2)?), next))
}

/// Where the operand at `at` of `code`, which is at `start`, leads.
fn relative(code: &[u8], start: u64, at: usize) -> Option<u64> {
    Some(start.wrapping_add(at as u64 + 4).wrapping_add_signed(i32_at(code, at)?))
}

/// Where jumps without a condition in `code`, which is at `start`, lead.
pub(crate) fn jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    (0..code.len()).filter(|at| code[*at] == 0xe9).filter_map(move |at| relative(code, start, at + 1))
}

/// Where calls and jumps without a condition in `code`, which is at `start`, lead, and the addresses that it takes of
/// places beside it: `lea place(%rip),%reg`. Other bytes may look like one of them.
pub(crate) fn functions_named_in(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let operand = |at: usize| match code.get(at..at + 3) {
        Some([0x48 | 0x4c, 0x8d, modrm]) if modrm & 0xc7 == 0x05 => Some(at + 3),
        _ => matches!(code.get(at), Some(0xe8 | 0xe9)).then_some(at + 1),
    };
    (0..code.len()).filter_map(operand).filter_map(move |at| relative(code, start, at))
}

/// Whether `code`, which is at `start`, has a jump to `target`.
pub(crate) fn jumps_to(code: &[u8], start: u64, target: u64) -> bool {
    let conditional = code.windows(2).enumerate().filter(|(_, bytes)| bytes[0] == 0x0f && bytes[1] & 0xf0 == 0x80);
    let mut conditional = conditional.filter_map(|(at, _)| relative(code, start, at + 2));
    jumps(code, start).any(|to| to == target) || conditional.any(|to| to == target)
}

/// Where the first call or jump in `code`, which is at `start`, leads.
pub(crate) fn first_call(code: &[u8], start: RemoteAddr) -> Option<RemoteAddr> {
    let at = code.windows(5).position(|window| matches!(window[0], 0xe8 | 0xe9))?;
    relative(code, start.0, at + 1).map(RemoteAddr)
}

/// The member of what its first argument points to that a function reads first: by the first `mov N(%rdi),%reg`.
pub(crate) fn first_member_read(code: &[u8]) -> Option<u8> {
    code.windows(3).find(|window| window[0] == 0x8b && window[1] & 0xc7 == 0x47).map(|load| load[2])
}

/// The variable that the function at `at` returns, if that is all it does: `mov variable(%rip),%eax; ret`.
pub(crate) fn returned_variable(at: RemoteAddr, code: &[u8]) -> Option<RemoteAddr> {
    let start = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let [0x8b, 0x05, a, b, c, d, 0xc3] = code.get(start..start + 7)? else { return None };
    let next = at.0.checked_add(start as u64 + 6)?;
    next.checked_add_signed(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))).map(RemoteAddr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_a_returned_variable_and_no_other() {
        let at = RemoteAddr(0x1000);
        let plain = [0x8b, 0x05, 0x10, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(returned_variable(at, &plain), Some(RemoteAddr(0x1016)));
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0x8b, 0x05, 0xf0, 0xff, 0xff, 0xff, 0xc3];
        assert_eq!(returned_variable(at, &marked), Some(RemoteAddr(0x1000 + 10 - 16)));
        assert_eq!(returned_variable(at, &[0x90; 11]), None);
        assert_eq!(returned_variable(RemoteAddr(u64::MAX - 2), &plain), None);
        assert_eq!(returned_variable(RemoteAddr(0), &[0x8b, 0x05, 0, 0, 0, 0x80, 0xc3, 0, 0, 0, 0]), None);
    }
}
