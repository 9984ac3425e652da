//! What the ways through code have done to a lock so far.

use super::explore::LockUse;
use crate::runtimes::Effect;

/// How much of a lock the ways so far account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Taken this many times more than released since the beginning.
    Open(i8),
    /// It is known which came first.
    Released,
    Taken(i8),
}

impl Standing {
    /// What comes of it when the lock is taken, which is possible `most` times, or released; `seen` learns which came first.
    pub(super) fn after(self, effect: Effect, most: i8, seen: &mut LockUse) -> Self {
        match (self, effect) {
            (Self::Open(count), Effect::Release) if count <= 0 => {
                seen.releases = true;
                Self::Released
            }
            (Self::Open(count), Effect::Release) => Self::Open(count - 1),
            (Self::Open(count), Effect::Take) => {
                seen.takes = true;
                Self::Taken(count.saturating_add(1).min(most))
            }
            (Self::Taken(count), Effect::Take) => Self::Taken(count.saturating_add(1).min(most)),
            (Self::Taken(count), Effect::Release) => Self::Taken((count - 1).max(0)),
            (Self::Released, _) => Self::Released,
        }
    }

    /// Whether the lock was taken on the way, and not released.
    pub(super) fn is_taken(self) -> bool {
        matches!(self, Self::Taken(1..))
    }
}

/// Notes the end of a way: where the function returns, or the view ends.
pub(super) fn end(seen: &mut [LockUse], locks: &[Standing]) {
    for (seen, standing) in seen.iter_mut().zip(locks) {
        seen.ends = true;
        seen.keeps |= matches!(standing, Standing::Taken(1..) | Standing::Open(1..));
    }
}

/// All standings in one word, four bits each; counts beyond a few are not told apart.
pub(super) fn packed(locks: &[Standing]) -> u64 {
    locks.iter().fold(0, |word, standing| {
        let number = match standing {
            Standing::Open(count) => (*count).clamp(0, 4) as u64,
            Standing::Released => 5,
            Standing::Taken(count) => 6 + (*count).clamp(0, 4) as u64,
        };
        word << 4 | number
    })
}
