//! Objects that are one word.

use super::u32_at;
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 4;

/// `pthread_once_t`: 0 new, bit 0 while somebody is at it (above it a count of forks), 2 done.
pub(super) fn once(bytes: &[u8]) -> Option<Content> {
    let value = u32_at(bytes, 0)?;
    let state = match value {
        0 => SyncState::New,
        value if value & 2 != 0 => SyncState::Done,
        value if value & 1 != 0 => SyncState::InProgress,
        _ => SyncState::Unknown,
    };
    Some(Content {
        is_plausible: matches!(value & 3, 0..=2) && (value & 3 == 1 || value <= 2),
        ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Futex { value })
    })
}

/// `pthread_spinlock_t`: 1 is free; each thread that tries takes one off.
pub(super) fn spinlock(bytes: &[u8]) -> Option<Content> {
    let value = u32_at(bytes, 0)? as i32;
    let state = if value == 1 { SyncState::Unlocked } else { SyncState::Locked };
    Some(Content {
        has_waiters: value < 0,
        is_plausible: value <= 1,
        ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Futex { value: value as u32 })
    })
}
