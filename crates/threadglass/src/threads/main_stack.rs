//! The main thread's stack, which libc did not allocate.

use crate::RemoteAddr;
use crate::model::Stack;
use crate::proc::StackLimit;
use crate::target::Target;

const PAGE: u64 = 4096;

/// The main thread's stack as `pthread_getattr_np` computes it: from the page of the initial stack
/// pointer down by the soft limit, or to the mapping below.
pub(super) fn main_stack(target: &dyn Target) -> Option<Stack> {
    let end = match target.address_of("__libc_stack_end") {
        Some(symbol) => target.read_addr(symbol).ok()?,
        None => target.initial_stack()?,
    };
    let top = RemoteAddr((end.0 & !(PAGE - 1)).checked_add(PAGE)?);
    let maps = target.maps();
    let index = maps.iter().position(|map| map.contains(end))?;
    let below = index.checked_sub(1).map_or(0, |index| maps[index].end.0);
    let room = top.0.checked_sub(below)?;
    let size = match target.stack_limit()? {
        StackLimit::Bytes(limit) => limit.saturating_sub(maps[index].end.0.saturating_sub(top.0)) & !(PAGE - 1),
        StackLimit::Unlimited => u64::MAX,
    };
    Some(Stack { base: top, size: size.min(room), guard: 0 })
}
