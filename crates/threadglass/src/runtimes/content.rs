//! What the bytes of an object say.

use crate::model::{Detail, SyncState};
use crate::{InnerTid, RemoteAddr};

/// Who owns an object, as the object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    /// By its kernel id.
    Tid(InnerTid),
    /// By its descriptor.
    Thread(RemoteAddr),
}

/// What an object's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) size: Option<u64>,
    pub(crate) shared: Option<bool>,
    pub(crate) state: SyncState,
    pub(crate) detail: Detail,
    pub(crate) owner: Owner,
    pub(crate) has_waiters: bool,
    pub(crate) is_plausible: bool,
    pub(crate) raw: Vec<u8>,
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

    /// The first word of `bytes`.
    pub(crate) fn word(bytes: &[u8]) -> u32 {
        bytes.get(..4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    /// The first eight bytes as a number.
    pub(crate) fn long(bytes: &[u8]) -> u64 {
        bytes.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}
