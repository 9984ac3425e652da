//! The main thread's stack, which libc did not allocate.

use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::Stack;
use crate::proc::{StackLimit, map_at};
use crate::target::Target;

const PAGE: u64 = 4096;

/// Bytes that are read at once where nothing but reading tells how far a stack reaches.
const CHUNK: u64 = 16 * PAGE;
/// Of a stack that is larger nothing is told: reading it would take too long.
const MOST: u64 = 1 << 26;

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

/// The main thread's stack where only memory can be read (a debugger's core): it is as large as what can be read below
/// its top. `end` is what the main thread's descriptor says of the initial stack pointer.
pub(super) fn mapped_stack(memory: &dyn Memory, end: RemoteAddr) -> Option<Stack> {
    let top = (end.0 & !(PAGE - 1)).checked_add(PAGE)?;
    let lowest = top.saturating_sub(MOST);
    let mut low = top;
    for step in [CHUNK, PAGE] {
        while low.checked_sub(step).is_some_and(|next| next >= lowest) && can_be_read(memory, low - step, step) {
            low -= step;
        }
    }
    // If nothing can be read any more, it was not the end of the stack that was found.
    let is_found = low < top && low > lowest && can_be_read(memory, top - PAGE, PAGE);
    is_found.then(|| Stack { base: RemoteAddr(top), size: top - low, guard: 0 })
}

/// Asked twice: a debugger's routine may fail once.
fn can_be_read(memory: &dyn Memory, at: u64, len: u64) -> bool {
    let mut bytes = vec![0; len as usize];
    (0..2).any(|_| memory.read_exact(RemoteAddr(at), &mut bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn reaches_as_far_as_memory_does() {
        let base = 0x7000_0000;
        for pages in [1, 15, 16, 17, 40] {
            let mut memory = Bytes::default();
            memory.map(RemoteAddr(base), vec![1; (pages * PAGE) as usize]);
            let end = RemoteAddr(base + pages * PAGE - 100);
            let stack = Stack { base: RemoteAddr(base + pages * PAGE), size: pages * PAGE, guard: 0 };
            assert_eq!(mapped_stack(&memory, end), Some(stack), "{pages} pages");
        }
        let mut endless = Bytes::default();
        endless.map(RemoteAddr(base), vec![1; (MOST + PAGE) as usize]);
        assert_eq!(mapped_stack(&endless, RemoteAddr(base + MOST)), None);
        for end in [0, 8, base, u64::MAX] {
            assert_eq!(mapped_stack(&Bytes::default(), RemoteAddr(end)), None, "{end:#x}");
        }
    }
}
