//! The concurrency level that a program asked for (`pthread_setconcurrency`).
//!
//! glibc does nothing with it but keep it in a variable that it does not export. The function that returns
//! it is two instructions long and names the variable: `mov level(%rip),%eax; ret`.

use crate::RemoteAddr;
use crate::target::{Memory, Symbols};

/// What `pthread_getconcurrency` would return in the target; `None` where that cannot be read.
pub fn requested_concurrency(memory: &dyn Memory, symbols: &dyn Symbols) -> Option<i32> {
    let function = symbols.address_of("pthread_getconcurrency")?;
    let mut code = [0; 11];
    memory.read_exact(function, &mut code).ok()?;
    let level = memory.read_u32(variable(function, &code)?).ok()?;
    Some(level.cast_signed())
}

/// The variable that the function at `at` returns, if it is one of that kind.
fn variable(at: RemoteAddr, code: &[u8; 11]) -> Option<RemoteAddr> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let start = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    let [0x8b, 0x05, a, b, c, d, 0xc3] = code.get(start..start + 7)? else { return None };
    let next = at.0.checked_add(start as u64 + 6)?;
    next.checked_add_signed(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))).map(RemoteAddr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_and_no_other() {
        let at = RemoteAddr(0x1000);
        let plain = [0x8b, 0x05, 0x10, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(variable(at, &plain), Some(RemoteAddr(0x1016)));
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0x8b, 0x05, 0xf0, 0xff, 0xff, 0xff, 0xc3];
        assert_eq!(variable(at, &marked), Some(RemoteAddr(0x1000 + 10 - 16)));
        assert_eq!(variable(at, &[0x90; 11]), None);
        assert_eq!(variable(RemoteAddr(u64::MAX - 2), &plain), None);
        assert_eq!(variable(RemoteAddr(0), &[0x8b, 0x05, 0, 0, 0, 0x80, 0xc3, 0, 0, 0, 0]), None);
    }
}
