//! `pthread_spinlock_t`: 1 is free; each thread that tries takes one off.

use super::u32_at;
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 4;

pub(super) fn decode(bytes: &[u8]) -> Option<Content> {
    let value = u32_at(bytes, 0)? as i32;
    let state = if value == 1 { SyncState::Unlocked } else { SyncState::Locked };
    Some(Content {
        has_waiters: value < 0,
        is_plausible: value <= 1,
        ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Futex { value: value as u32 })
    })
}
