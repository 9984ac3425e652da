//! Switching an agent on that was loaded `off`, from outside, and off again.
//!
//! An agent that was on from the beginning stays as it is. One that was switched on goes off when the last process that
//! wanted it on gives it back, or is no more: the agent looks for them itself.

use crate::RemoteAddr;
use crate::arch::ticks;
use crate::memory::MemoryWrite;
use crate::table::{Agent, TrackError};
use std::mem::offset_of;
use table::{Header, LEASE, mode};

/// The slot, among those of an agent, of a process that wants the agent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerSlot(usize);

impl Agent {
    /// Switches the agent on for process `controller`, or tells it that this process still wants it: `slot` is what the
    /// last call returned. `None` if the agent is on for good. The program runs on meanwhile.
    pub fn switch_on(
        &self,
        memory: &dyn MemoryWrite,
        controller: u32,
        slot: Option<ControllerSlot>,
    ) -> Result<Option<ControllerSlot>, TrackError> {
        let view = &self.view;
        if self.is_on() && view.lease == 0 {
            return Ok(None);
        }
        let kept = slot.filter(|slot| view.controllers.get(slot.0) == Some(&controller));
        let slot = match kept {
            Some(slot) => slot,
            None => {
                let free = view.controllers.iter().position(|pid| *pid == 0).ok_or(TrackError::Crowded)?;
                memory.write_at(self.controller(free)?, &controller.to_le_bytes())?;
                ControllerSlot(free)
            }
        };
        let now = self.now();
        let write = |at, value: u64| memory.write_at(self.field(at)?, &value.to_le_bytes()).map_err(TrackError::from);
        write(offset_of!(Header, lease), now.saturating_add(LEASE))?;
        if !self.is_on() {
            write(offset_of!(Header, enabled_at), now)?;
            let wanted = if view.wanted == mode::EXACT { mode::EXACT } else { mode::SAMPLED };
            memory.write_at(self.field(offset_of!(Header, mode))?, &wanted.to_le_bytes())?;
            self.track(memory, true)?;
        }
        Ok(Some(slot))
    }

    /// Gives back the `slot` of process `controller`; the last process switches the agent off. What was counted stays.
    pub fn switch_off(
        &self,
        memory: &dyn MemoryWrite,
        controller: u32,
        slot: ControllerSlot,
    ) -> Result<(), TrackError> {
        let view = &self.view;
        if view.controllers.get(slot.0) != Some(&controller) {
            return Ok(());
        }
        memory.write_at(self.controller(slot.0)?, &[0; 4])?;
        let is_wanted = view.controllers.iter().enumerate().any(|(number, pid)| *pid != 0 && number != slot.0);
        if !is_wanted && view.lease != 0 && self.is_on() {
            self.track(memory, false)?;
            memory.write_at(self.field(offset_of!(Header, mode))?, &mode::OFF.to_le_bytes())?;
        }
        Ok(())
    }

    fn controller(&self, number: usize) -> Result<RemoteAddr, TrackError> {
        self.field(offset_of!(Header, controllers) + 4 * number)
    }

    fn field(&self, offset: usize) -> Result<RemoteAddr, TrackError> {
        self.address.0.checked_add(offset as u64).map(RemoteAddr).ok_or(TrackError::Damaged)
    }

    /// The time as the agent has it.
    fn now(&self) -> u64 {
        let (ticks, ns) = ticks::pair().unwrap_or_default();
        if self.view.clock == table::clock::TICKS { ticks } else { ns }
    }

    /// Lets calls be tracked, or go to the C library: one byte, so that the running program sees one or the other.
    fn track(&self, memory: &dyn MemoryWrite, on: bool) -> Result<(), TrackError> {
        Ok(memory.write_at(RemoteAddr(self.view.is_on), &[u8::from(on)])?)
    }
}
