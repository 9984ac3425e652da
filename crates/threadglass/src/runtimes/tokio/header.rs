//! The header of a task: what tokio knows of it, whatever its future is.

use super::vtables::{Vtable, Vtables};
use crate::RemoteAddr;
use crate::memory::u64_at;

/// Tasks begin at such addresses.
pub(super) const ALIGNMENT: u64 = 128;
/// What is read of a task at first. Most are not larger.
pub(super) const FIRST_READ: usize = 512;
const VTABLE: usize = 16;
const OWNER: usize = 24;
/// The first bit of the number of references, in the state.
const REFERENCES: u32 = 6;
/// The links of the list of all tasks, in the trailer.
const PREVIOUS: u64 = 0;
const NEXT: u64 = 8;

/// The word that says in which state a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateWord(pub(super) u64);

impl StateWord {
    /// A thread polls it now.
    pub(super) fn is_running(self) -> bool {
        self.0 & 1 != 0
    }

    /// Its future has ended.
    pub(super) fn is_complete(self) -> bool {
        self.0 & 2 != 0
    }

    /// It is to be polled: it stands in a queue, or will when the present poll ends.
    pub(super) fn is_notified(self) -> bool {
        self.0 & 4 != 0
    }

    /// Somebody asked for its end.
    pub(super) fn is_cancelled(self) -> bool {
        self.0 & 32 != 0
    }

    /// Whether both say the same of the task; how many refer to it may be different.
    pub(super) fn is_same(self, other: Self) -> bool {
        self.0 % (1 << REFERENCES) == other.0 % (1 << REFERENCES)
    }

    fn references(self) -> u64 {
        self.0 >> REFERENCES
    }
}

/// What the header of a task says, and the links of the list it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) at: RemoteAddr,
    pub(super) state: StateWord,
    /// Its table of functions, and the address of that.
    pub(super) vtable: Vtable,
    pub(super) vtable_at: u64,
    /// The number of the list that it is in; 0 for none.
    pub(super) owner: u64,
    pub(super) scheduler: u64,
    pub(super) id: u64,
    pub(super) previous: u64,
    pub(super) next: u64,
}

/// What the first bytes of a task tell.
pub(super) enum Decoded {
    /// There is a task.
    Task(Header),
    /// Its links are behind the bytes that were read: so many are needed.
    Longer(usize),
}

impl Header {
    /// What `bytes`, which are at `at`, say; `None` where that is no task.
    pub(super) fn decode(at: RemoteAddr, bytes: &[u8], vtables: &Vtables) -> Option<Decoded> {
        let vtable_at = u64_at(bytes, VTABLE)?;
        let vtable = *vtables.at(vtable_at)?;
        let (state, owner) = (StateWord(u64_at(bytes, 0)?), u64_at(bytes, OWNER)?);
        // Whoever finds a task has a reference to it, or the list has.
        if !at.0.is_multiple_of(8) || state.references() == 0 || state.references() > 1 << 32 {
            return None;
        }
        let end = usize::try_from(vtable.trailer).ok()?.checked_add(16)?;
        let word = |offset: u64| u64_at(bytes, usize::try_from(offset).ok()?);
        let (Some(previous), Some(next)) = (word(vtable.trailer + PREVIOUS), word(vtable.trailer + NEXT)) else {
            return Some(Decoded::Longer(end));
        };
        let (scheduler, id) = (word(vtable.scheduler)?, word(vtable.id)?);
        Some(Decoded::Task(Self { at, state, vtable, vtable_at, owner, scheduler, id, previous, next }))
    }

    /// Whether both are the same task, whatever happened to it in between.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.at, self.vtable_at, self.owner, self.scheduler, self.id)
            == (other.at, other.vtable_at, other.owner, other.scheduler, other.id)
    }
}
