//! Thread events (creation and death), as libc reports them to a debugger that asked.
//!
//! Changing masks and fetching messages writes to the target: that needs [`MemoryWrite`].

use super::layout::Fields;
use crate::memory::{Memory, MemoryWrite, ReadError};
use crate::target::Symbols;
use crate::{PthreadId, RemoteAddr};

/// Where libc keeps event masks and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLayout {
    /// A function without effect, run when a thread was created.
    pub create_function: Option<RemoteAddr>,
    /// The same for a thread that is about to end.
    pub death_function: Option<RemoteAddr>,
    /// Mask of the whole process (two words).
    process_mask: RemoteAddr,
    /// Chain of threads with a message.
    last_event: RemoteAddr,
    /// Offsets in a descriptor.
    report: u64,
    mask: u64,
    number: u64,
    data: u64,
    next: u64,
}

/// A set of events: event `n` is bit `n - 1`.
pub type EventMask = [u32; 2];

/// An event that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its thread.
    pub thread: PthreadId,
    /// Event number.
    pub event: u32,
    /// What comes with it: the thread's descriptor.
    pub data: u64,
}

/// Why a message cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// There is none.
    #[error("no event is waiting")]
    NoMessage,
    /// The chain of messages is corrupt.
    #[error("the chain of events is corrupt")]
    Corrupt,
    /// Memory could not be read or written.
    #[error(transparent)]
    Memory(#[from] ReadError),
}

/// Longest chain that is followed.
const MAX_CHAIN: usize = 1 << 20;

impl EventLayout {
    pub(super) fn described(symbols: &dyn Symbols, fields: &Fields) -> Option<Self> {
        let buffer = fields.offset("pthread_eventbuf")?;
        Some(Self {
            create_function: symbols.address_of("__nptl_create_event"),
            death_function: symbols.address_of("__nptl_death_event"),
            process_mask: symbols.address_of("__nptl_threads_events")?,
            last_event: symbols.address_of("__nptl_last_event")?,
            report: fields.offset("pthread_report_events")?,
            mask: fields.offset("pthread_eventbuf_eventmask")?,
            number: buffer + fields.offset("td_eventbuf_t_eventnum")?,
            data: buffer + fields.offset("td_eventbuf_t_eventdata")?,
            next: fields.offset("pthread_nextevent")?,
        })
    }

    /// Turns reporting for one thread on or off.
    pub fn enable(&self, memory: &dyn MemoryWrite, id: PthreadId, on: bool) -> Result<(), ReadError> {
        memory.write_at(id.0.offset(self.report), &[u8::from(on)])
    }

    /// Changes the mask of thread `id`, or of the whole process.
    pub fn change_mask(
        &self,
        memory: &dyn MemoryWrite,
        id: Option<PthreadId>,
        change: impl Fn(EventMask) -> EventMask,
    ) -> Result<(), ReadError> {
        let at = id.map_or(self.process_mask, |id| id.0.offset(self.mask));
        let words = memory.read_u64(at)?;
        let [low, high] = change([words as u32, (words >> 32) as u32]);
        memory.write_at(at, &(u64::from(high) << 32 | u64::from(low)).to_le_bytes())
    }

    fn message_of(&self, memory: &dyn Memory, id: PthreadId) -> Result<Option<Message>, ReadError> {
        let event = memory.read_u32(id.0.offset(self.number))?;
        let data = memory.read_u64(id.0.offset(self.data))?;
        Ok((event != 0).then_some(Message { thread: id, event, data }))
    }

    /// Takes the message of thread `id` off the chain.
    pub fn take_from(&self, memory: &dyn MemoryWrite, id: PthreadId) -> Result<Message, EventError> {
        let message = self.message_of(memory, id)?.ok_or(EventError::NoMessage)?;
        // The link that leads to this thread is either the chain's head or another thread's.
        let mut link = self.last_event;
        for _ in 0..MAX_CHAIN {
            let thread = memory.read_addr(link)?;
            if thread.is_null() {
                break;
            }
            if thread == id.0 {
                self.unlink(memory, link, id)?;
                return Ok(message);
            }
            link = thread.offset(self.next);
        }
        Err(EventError::Corrupt)
    }

    /// Takes the newest message of any thread.
    pub fn take_any(&self, memory: &dyn MemoryWrite) -> Result<Message, EventError> {
        for _ in 0..MAX_CHAIN {
            let thread = memory.read_addr(self.last_event)?;
            if thread.is_null() {
                return Err(EventError::NoMessage);
            }
            let id = PthreadId(thread);
            let message = self.message_of(memory, id)?;
            self.unlink(memory, self.last_event, id)?;
            if let Some(message) = message {
                return Ok(message);
            }
        }
        Err(EventError::Corrupt)
    }

    /// Removes `id` from the chain at `link`, and its message.
    fn unlink(&self, memory: &dyn MemoryWrite, link: RemoteAddr, id: PthreadId) -> Result<(), ReadError> {
        let next = memory.read_addr(id.0.offset(self.next))?;
        memory.write_at(link, &next.0.to_le_bytes())?;
        memory.write_at(id.0.offset(self.next), &[0; 8])?;
        memory.write_at(id.0.offset(self.number), &[0; 4])
    }
}
