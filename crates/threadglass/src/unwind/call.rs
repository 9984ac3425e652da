//! The call instruction before a return address, and where it leads.

use super::space::Space;
use crate::arch::code::{self, LONGEST_CALL};

/// Stubs between a call and its function.
const MAX_STUBS: usize = 3;

/// What precedes a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A call of a fixed place: of this address, in the end.
    To(u64),
    /// A call by way of a register or of memory that may have changed since.
    Indirect,
}

/// Decodes the call that returns to `back`; `None` when no call can be there.
pub(super) fn call_before(space: &Space<'_>, back: u64) -> Option<Call> {
    let code: [u8; LONGEST_CALL] = space.code(back.checked_sub(LONGEST_CALL as u64)?)?;
    if let Some(target) = code::direct_call(&code, back).filter(|target| space.is_code(*target)) {
        return Some(Call::To(through_stubs(space, target)));
    }
    if let Some(slot) = code::call_by_slot(&code, back) {
        return Some(word(space, slot).filter(|to| space.is_code(*to)).map_or(Call::Indirect, Call::To));
    }
    code::ends_in_indirect_call(&code).then_some(Call::Indirect)
}

/// Follows jumps through the procedure linkage table from `target` to the function itself.
pub(crate) fn through_stubs(space: &Space<'_>, mut target: u64) -> u64 {
    for _ in 0..MAX_STUBS {
        let Some(next) = stub_at(space, target) else { break };
        target = next;
    }
    target
}

/// Name of the function that the stub at `addr` will jump to, of a stub that nobody has called yet.
pub(crate) fn unbound_import(space: &Space<'_>, addr: u64) -> Option<String> {
    space.import_at(slot_of_stub(space, addr)?.0)
}

/// Where the stub at `addr` jumps; `None` when there is no stub.
fn stub_at(space: &Space<'_>, addr: u64) -> Option<u64> {
    let (slot, next) = slot_of_stub(space, addr)?;
    // A slot that is not resolved yet leads back into the table: nobody has called through it.
    word(space, slot).filter(|to| space.is_code(*to) && *to != next)
}

/// The slot through which the stub at `addr` jumps, and the address behind the jump.
fn slot_of_stub(space: &Space<'_>, addr: u64) -> Option<(u64, u64)> {
    code::slot_of_stub(&space.code(addr)?, addr)
}

fn word(space: &Space<'_>, addr: u64) -> Option<u64> {
    space.code(addr).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;
    use crate::target::Bytes;

    fn before(code: &[u8]) -> Option<Call> {
        let mut bytes = vec![0x90; 0x100];
        bytes[0x40 - code.len()..0x40].copy_from_slice(code);
        // A stub at 0x80: endbr64; jmp *0x1090, which holds 0x1000.
        bytes[0x80..0x8a].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x06, 0, 0, 0]);
        bytes[0x90..0x98].copy_from_slice(&0x1000u64.to_le_bytes());
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), bytes);
        call_before(&Space::new(&target, &[(RemoteAddr(0x1000), RemoteAddr(0x1100))]), 0x1040)
    }

    #[test]
    fn direct_and_by_a_stub() {
        assert_eq!(before(&[0xe8, 0x10, 0, 0, 0]), Some(Call::To(0x1050)));
        assert_eq!(before(&[0xe8, 0x40, 0, 0, 0]), Some(Call::To(0x1000)), "the stub is looked through");
        assert_eq!(before(&[0xe8, 0, 0, 0x10, 0]), None, "a target outside of all code is no call");
        assert_eq!(before(&[0xff, 0x15, 0x50, 0, 0, 0]), Some(Call::To(0x1000)));
    }

    #[test]
    fn indirect_forms() {
        let forms: [&[u8]; 9] = [
            &[0xff, 0xd0],                               // *%rax
            &[0x41, 0xff, 0xd4],                         // *%r12
            &[0xff, 0x10],                               // *(%rax)
            &[0xff, 0x50, 0x08],                         // *8(%rax)
            &[0xff, 0x54, 0x24, 0x08],                   // *8(%rsp)
            &[0xff, 0x90, 0x40, 0x06, 0, 0],             // *0x640(%rax)
            &[0xff, 0x94, 0x24, 0x40, 0x06, 0, 0],       // *0x640(%rsp)
            &[0x64, 0xff, 0x14, 0x25, 0x40, 0x06, 0, 0], // *%fs:0x640
            &[0xff, 0x14, 0xc2],                         // *(%rdx,%rax,8)
        ];
        for form in forms {
            assert_eq!(before(form), Some(Call::Indirect), "{form:x?}");
        }
        assert_eq!(before(&[0xff, 0xe0]), None, "a jump");
        assert_eq!(before(&[0x48, 0x89, 0xe5]), None);
    }
}
