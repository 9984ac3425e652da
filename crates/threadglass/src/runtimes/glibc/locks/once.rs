//! `pthread_once_t`: 0 new, bit 0 while somebody is at it (above it a count of forks), 2 done.

use super::{Decoded, word};
use crate::model::{Detail, SyncKind, SyncState};

pub(super) const SIZE: usize = 4;

pub(super) fn decode(bytes: &[u8]) -> Option<Decoded> {
    let value = word(bytes, 0)?;
    Some(Decoded {
        kind: SyncKind::Once,
        size: SIZE as u64,
        shared: None,
        state: match value {
            0 => SyncState::New,
            value if value & 2 != 0 => SyncState::Done,
            value if value & 1 != 0 => SyncState::InProgress,
            _ => SyncState::Unknown,
        },
        detail: Detail::Futex { value },
        owner: None,
        has_waiters: false,
        is_plausible: matches!(value & 3, 0..=2) && (value & 3 == 1 || value <= 2),
    })
}
