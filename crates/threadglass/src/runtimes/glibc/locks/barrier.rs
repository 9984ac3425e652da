//! `pthread_barrier_t`.

use super::u32_at;
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 32;
const SHARED: u32 = 128;

pub(super) fn decode(bytes: &[u8]) -> Option<Content> {
    bytes.get(..SIZE)?;
    let word = |at| u32_at(bytes, at);
    let (entered, round, needed, shared, left) = (word(0)?, word(4)?, word(8)?, word(12)?, word(16)?);
    let arrived = entered.wrapping_sub(round);
    let state = if arrived == 0 { SyncState::Idle } else { SyncState::Waiting };
    Some(Content {
        shared: Some(shared == SHARED),
        has_waiters: arrived != 0,
        // Never more inside than it waits for, and nobody leaves before all have come.
        is_plausible: needed > 0 && arrived <= needed && matches!(shared, 0 | SHARED) && left <= entered,
        ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Barrier { needed, arrived })
    })
}
