//! `pthread_rwlock_t`.

use super::u32_at;
use crate::InnerTid;
use crate::model::{Detail, Preference, SyncState};
use crate::runtimes::{Content, Owner};

pub(super) const SIZE: usize = 56;

/// It is the writers' turn.
pub(crate) const WRITE_PHASE: u32 = 1;
/// There is a primary writer: it holds the lock, or waits for the readers to leave.
pub(crate) const WRITE_LOCKED: u32 = 2;
/// Readers wait on the word itself.
const READERS_WAIT: u32 = 4;
pub(crate) const READER_SHIFT: u32 = 3;
/// In the two words that threads wait on: somebody may.
pub(crate) const USED: u32 = 2;

/// The fields of a rwlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwlock {
    /// Phase, writer and readers in one.
    pub readers: u32,
    /// Writers that wait for their turn.
    pub writers: u32,
    /// Waited on until the phase changes.
    pub phase_futex: u32,
    /// Waited on by further writers.
    pub writers_futex: u32,
    /// The writer.
    pub writer: u32,
    shared: u32,
    flags: u32,
}

impl Rwlock {
    /// From its bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        bytes.get(..SIZE)?;
        Some(Self {
            readers: u32_at(bytes, 0)?,
            writers: u32_at(bytes, 4)?,
            phase_futex: u32_at(bytes, 8)?,
            writers_futex: u32_at(bytes, 12)?,
            writer: u32_at(bytes, 24)?,
            shared: u32_at(bytes, 28)?,
            flags: u32_at(bytes, 48)?,
        })
    }

    /// Whether a writer holds it.
    pub fn is_write_locked(&self) -> bool {
        self.readers & (WRITE_PHASE | WRITE_LOCKED) == WRITE_PHASE | WRITE_LOCKED
    }

    /// How many hold it for reading.
    pub fn readers_inside(&self) -> u32 {
        if self.readers & WRITE_PHASE == 0 { self.readers >> READER_SHIFT } else { 0 }
    }

    /// Whether a writer waits for readers to leave.
    pub fn has_primary_writer_waiting(&self) -> bool {
        self.readers & (WRITE_PHASE | WRITE_LOCKED) == WRITE_LOCKED
    }

    /// Its state.
    pub fn state(&self) -> SyncState {
        if self.is_write_locked() {
            SyncState::WriteLocked
        } else if self.readers_inside() > 0 {
            SyncState::ReadLocked
        } else {
            SyncState::Unlocked
        }
    }

    /// The writer that holds it; `None` also in the moments around taking it and letting it go.
    pub fn owner(&self) -> Option<InnerTid> {
        (self.is_write_locked() && self.writer as i32 > 0).then_some(InnerTid(self.writer as i32))
    }

    fn writers_waiting(&self) -> u32 {
        self.writers & 0x7fff_ffff
    }

    /// Whether it believes to have waiters.
    pub fn has_waiters(&self) -> bool {
        let readers = self.is_write_locked() && self.readers >> READER_SHIFT > 0;
        let writer = self.has_primary_writer_waiting() && self.readers >> READER_SHIFT > 0;
        readers
            || writer
            || self.readers & READERS_WAIT != 0
            || self.writers_futex & USED != 0
            || self.writers_waiting() > 0
    }

    /// Whether a rwlock can have these bytes.
    pub fn is_plausible(&self) -> bool {
        let readers = self.readers >> READER_SHIFT;
        readers < 1 << 22
            && self.writers_waiting() < 1 << 22
            && self.phase_futex <= 3
            && self.writers_futex <= 3
            && self.flags <= 2
            && self.shared <= 1
            && self.writer <= 1 << 22
            // A writer signs after it took the lock and before it lets it go.
            && (self.writer == 0 || self.readers & WRITE_LOCKED != 0)
    }

    pub(super) fn content(&self, bytes: &[u8]) -> Content {
        let detail = Detail::Rwlock {
            preference: match self.flags {
                0 => Preference::Reader,
                1 => Preference::Writer,
                _ => Preference::WriterNonrecursive,
            },
            readers: self.readers_inside(),
            writer_queued: self.has_primary_writer_waiting()
                || self.writers_waiting() > 0
                || self.is_write_locked() && self.writers_futex & USED != 0,
        };
        Content {
            shared: Some(self.shared != 0),
            owner: self.owner().map_or(Owner::None, Owner::Tid),
            has_waiters: self.has_waiters(),
            is_plausible: self.is_plausible(),
            ..Content::plain(bytes, Some(SIZE as u64), self.state(), detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rwlock(readers: u32, writer: u32) -> Rwlock {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&readers.to_le_bytes());
        bytes[24..28].copy_from_slice(&writer.to_le_bytes());
        Rwlock::new(&bytes).unwrap()
    }

    #[test]
    fn the_eight_states_of_the_word() {
        let of = |readers| {
            let lock = rwlock(readers, 0);
            (lock.state(), lock.readers_inside(), lock.has_waiters())
        };
        assert_eq!(of(0), (SyncState::Unlocked, 0, false));
        assert_eq!(of(3 << 3), (SyncState::ReadLocked, 3, false));
        assert_eq!(of(2), (SyncState::Unlocked, 0, false));
        assert_eq!(of(1 << 3 | 2), (SyncState::ReadLocked, 1, true));
        assert_eq!(of(1 << 3 | 6), (SyncState::ReadLocked, 1, true));
        assert_eq!(of(1), (SyncState::Unlocked, 0, false));
        assert_eq!(of(1 << 3 | 1), (SyncState::Unlocked, 0, false));
        assert_eq!(of(3), (SyncState::WriteLocked, 0, false));
        assert_eq!(of(2 << 3 | 3), (SyncState::WriteLocked, 0, true));
        assert_eq!(rwlock(3, 5).owner(), Some(InnerTid(5)));
        assert!(!rwlock(0, 5).is_plausible());
    }
}
