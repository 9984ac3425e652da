//! `sem_t`.

use super::u32_at;
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 32;
/// What `sem_init` keeps for one that processes share.
const SHARED: u32 = 128;

/// The fields of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    /// How often it can be taken.
    pub value: u32,
    /// Threads that wait, or have just been woken.
    pub waiters: u32,
    private: u32,
}

impl Semaphore {
    /// From its bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        bytes.get(..SIZE)?;
        Some(Self { value: u32_at(bytes, 0)?, waiters: u32_at(bytes, 4)?, private: u32_at(bytes, 8)? })
    }

    pub(super) fn content(&self, bytes: &[u8]) -> Content {
        let state = if self.value == 0 { SyncState::Exhausted } else { SyncState::Available };
        Content {
            shared: Some(self.private == SHARED),
            has_waiters: self.waiters != 0,
            is_plausible: self.value <= i32::MAX as u32 && self.waiters < 1 << 22 && matches!(self.private, 0 | SHARED),
            ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Semaphore { count: self.value })
        }
    }
}
