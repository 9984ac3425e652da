//! The concurrency level that a program asked for (`pthread_setconcurrency`).
//!
//! glibc does nothing with it but keep it in a variable that it does not export. The function that returns
//! it does nothing else, and names the variable.

use crate::arch::code::returned_variable;
use crate::memory::Memory;
use crate::target::Symbols;

/// What `pthread_getconcurrency` would return in the target; `None` where that cannot be read.
pub fn requested_concurrency(memory: &dyn Memory, symbols: &dyn Symbols) -> Option<i32> {
    let function = symbols.address_of("pthread_getconcurrency")?;
    let code = memory.read_vec(function, 11).ok()?;
    let level = memory.read_u32(returned_variable(function, &code)?).ok()?;
    Some(level.cast_signed())
}
