//! `pthread_barrier_t`.

use super::{Decoded, word};
use crate::model::{Detail, SyncKind, SyncState};

pub(super) const SIZE: usize = 32;
const SHARED: u32 = 128;

pub(super) fn decode(bytes: &[u8]) -> Option<Decoded> {
    bytes.get(..SIZE)?;
    let [entered, round, needed, shared, left] = [0, 4, 8, 12, 16].map(|at| word(bytes, at));
    let (entered, round, needed, shared, left) = (entered?, round?, needed?, shared?, left?);
    let arrived = entered.wrapping_sub(round);
    Some(Decoded {
        kind: SyncKind::Barrier,
        size: SIZE as u64,
        shared: Some(shared == SHARED),
        state: if arrived == 0 { SyncState::Idle } else { SyncState::Waiting },
        detail: Detail::Barrier { needed, arrived },
        owner: None,
        has_waiters: arrived != 0,
        // Never more inside than it waits for, and nobody leaves before all have come.
        is_plausible: needed > 0 && arrived <= needed && matches!(shared, 0 | SHARED) && left <= entered,
    })
}
