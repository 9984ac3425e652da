//! Reading the stacks of threads that have waited.

use super::Agent;
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::memory::Memory;
use table::decode::{STACK_SIZE, stack};

/// Where a thread was that has waited.
#[derive(Clone, Debug)]
pub(crate) struct WaitSample {
    /// The lock.
    pub(crate) lock: RemoteAddr,
    /// Time waited for the lock since its last sample.
    pub(crate) time_ns: u64,
    /// Registers in the call: the program counter is within it.
    pub(crate) registers: Registers,
    /// The stack from the stack pointer on.
    pub(crate) bytes: Vec<u8>,
}

impl Agent {
    /// Stacks that were taken so far.
    pub(crate) fn stacks_taken(&self) -> u64 {
        self.view.stacks.2
    }

    /// Those that were taken since there were `taken`, as far as they are still there.
    pub(crate) fn stacks_since(&self, memory: &dyn Memory, taken: u64) -> Vec<WaitSample> {
        let (start, room, next) = self.view.stacks;
        let first = taken.max(next.saturating_sub(room));
        (first..next).filter_map(|number| self.stack(memory, start, room, number)).collect()
    }

    fn stack(&self, memory: &dyn Memory, start: u64, room: u64, number: u64) -> Option<WaitSample> {
        let place = number.checked_rem(room)?.checked_mul(STACK_SIZE as u64)?;
        let at = RemoteAddr(start.checked_add(place)?);
        let mut bytes = [0; STACK_SIZE];
        memory.read_exact(at, &mut bytes).ok()?;
        let found = stack(&bytes, number, memory.read_u64(at).ok()?)?;
        let (pc, sp) = (RemoteAddr(found.site.checked_sub(1)?), RemoteAddr(found.sp));
        Some(WaitSample {
            lock: RemoteAddr(found.key.address()),
            time_ns: self.scale.ns(found.time),
            registers: Registers::blocked(pc, sp).with_frame_pointer(found.frame_pointer),
            bytes: found.bytes.to_vec(),
        })
    }
}
