//! `pthread_barrier_t`.

use super::u32_at;
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 32;
const SHARED: u32 = 128;

pub(super) fn decode(bytes: &[u8]) -> Option<Content> {
    bytes.get(..SIZE)?;
    let [entered, round, needed, shared, left] = [0, 4, 8, 12, 16].map(|at| u32_at(bytes, at));
    let (entered, round, needed, shared, left) = (entered?, round?, needed?, shared?, left?);
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
