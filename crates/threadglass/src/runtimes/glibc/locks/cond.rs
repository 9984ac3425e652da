//! `pthread_cond_t`, in both of its layouts.

use super::{u32_at, u64_at};
use crate::model::{Detail, SyncState};
use crate::runtimes::Content;

pub(super) const SIZE: usize = 48;
const SHARED: u32 = 1;
/// Above it, threads inside a wait are counted.
const INSIDE_SHIFT: u32 = 3;

/// Where a condition variable keeps what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CondLayout {
    /// Up to 2.40, unless a distribution has taken the change over.
    Old,
    /// From 2.41 on.
    New,
    /// Nothing tells.
    Unknown,
}

impl CondLayout {
    /// Offset of the first of the two words that threads wait on.
    pub fn signals(self) -> Option<u64> {
        match self {
            Self::Old => Some(40),
            Self::New => Some(32),
            Self::Unknown => None,
        }
    }

    /// Offset of the count of threads inside, which stands before them.
    fn inside(self) -> Option<usize> {
        Some(self.signals()? as usize - 4)
    }
}

pub(super) fn decode(bytes: &[u8], layout: CondLayout) -> Option<Content> {
    bytes.get(..SIZE)?;
    let references = u32_at(bytes, layout.inside()?)?;
    let inside = references >> INSIDE_SHIFT;
    let (sequence, start) = (u64_at(bytes, 0)? >> 1, u64_at(bytes, 8)?);
    let fits = match layout {
        CondLayout::Old => {
            let users = [u32_at(bytes, 16)? >> 1, u32_at(bytes, 20)? >> 1];
            start >> 1 <= sequence && users.iter().all(|users| *users <= inside)
        }
        CondLayout::New => start <= sequence && u64_at(bytes, 40)? == 0,
        CondLayout::Unknown => false,
    };
    let state = if inside == 0 { SyncState::Idle } else { SyncState::Waiting };
    Some(Content {
        shared: Some(references & SHARED != 0),
        has_waiters: inside != 0,
        is_plausible: inside < 1 << 22 && u64::from(inside) <= sequence && fits,
        ..Content::plain(bytes, Some(SIZE as u64), state, Detail::Cond { inside, mutex: None })
    })
}
