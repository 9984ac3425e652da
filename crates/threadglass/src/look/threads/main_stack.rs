//! The main thread's stack, which libc did not allocate.

use crate::RemoteAddr;
use crate::model::Stack;
use crate::proc::{StackLimit, map_at};
use crate::target::Target;

const PAGE: u64 = 4096;

/// The main thread's stack as `pthread_getattr_np` computes it: from the page of the initial stack
/// pointer down by the soft limit, or to the mapping below. `recorded` is what the main thread's own
/// descriptor says of the former; it goes before what the kernel says, because a static program's libc
/// takes the pointer after it has pushed something, which may lie a page lower.
pub(super) fn main_stack(target: &dyn Target, recorded: Option<RemoteAddr>) -> Option<Stack> {
    let symbol = target.address_of("__libc_stack_end").and_then(|symbol| target.read_addr(symbol).ok());
    let end = symbol.or(recorded).or_else(|| target.initial_stack())?;
    let top = RemoteAddr((end.0 & !(PAGE - 1)).checked_add(PAGE)?);
    let limit = match target.stack_limit()? {
        StackLimit::Bytes(limit) => limit,
        StackLimit::Unlimited => u64::MAX,
        StackLimit::AsMapped => {
            let map = map_at(target.maps(), end)?;
            return Some(Stack { base: top, size: top.0.checked_sub(map.start.0)?, guard: 0 });
        }
    };
    let (mapping_end, room) = target.room_below(end, top, limit.min(top.0))?;
    // The kernel grows the mapping by the limit, counted from its end, which may lie above the page that
    // libc takes for the top.
    let size = limit.saturating_sub(mapping_end.0.saturating_sub(top.0)) & !(PAGE - 1);
    Some(Stack { base: top, size: size.min(room), guard: 0 })
}
