//! `pthread_spinlock_t`: 1 is free; each thread that tries takes one off.

use super::{Decoded, word};
use crate::model::{Detail, SyncKind, SyncState};

pub(super) const SIZE: usize = 4;

pub(super) fn decode(bytes: &[u8]) -> Option<Decoded> {
    let value = word(bytes, 0)? as i32;
    Some(Decoded {
        kind: SyncKind::Spinlock,
        size: SIZE as u64,
        shared: None,
        state: if value == 1 { SyncState::Unlocked } else { SyncState::Locked },
        detail: Detail::Futex { value: value as u32 },
        owner: None,
        has_waiters: value < 0,
        is_plausible: value <= 1,
    })
}
