//! What the bytes of an object say.

use crate::model::{Detail, SyncState};
use crate::{InnerTid, RemoteAddr};

/// Who owns an object, as the object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody, or the object does not say.
    None,
    /// By its kernel id, as the target sees it.
    Tid(InnerTid),
    /// By its descriptor.
    Thread(RemoteAddr),
    /// A thread that has ended; which one it was is not recorded.
    Ended,
}

/// What an object's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Bytes it takes; `None` where that depends on what is not known.
    pub size: Option<u64>,
    /// Whether processes may share it; `None` where it does not say.
    pub shared: Option<bool>,
    /// Its state.
    pub state: SyncState,
    /// What only its kind has.
    pub detail: Detail,
    /// Its owner.
    pub owner: Owner,
    /// Whether it believes to have waiters. May be out of date in either direction.
    pub has_waiters: bool,
    /// Whether an object of its kind can have these bytes.
    pub is_plausible: bool,
    /// The bytes.
    pub raw: Vec<u8>,
}

impl Content {
    /// Of an object that names no owner.
    pub(crate) fn plain(bytes: &[u8], size: Option<u64>, state: SyncState, detail: Detail) -> Self {
        Self {
            size,
            shared: None,
            state,
            detail,
            owner: Owner::None,
            has_waiters: false,
            is_plausible: true,
            raw: bytes.to_vec(),
        }
    }

    /// The owner's kernel id, where the object has that.
    pub fn owner_tid(&self) -> Option<InnerTid> {
        match self.owner {
            Owner::Tid(tid) => Some(tid),
            Owner::None | Owner::Thread(_) | Owner::Ended => None,
        }
    }
}
