//! Back to the bytes from before.

use crate::model::{Evidence, Family, SetPlan, SyncKind, SyncObject, WordWrite};
use crate::runtimes::{SetError, empty_plan, u32_at};
use crate::{Lwp, RemoteAddr};

/// What it takes to give an object of which `words` were written its old bytes again, which are `old`. Refuses if it
/// has other bytes now than those that were written: then somebody has used the new state. Where the change
/// may have been cut short (`is_partial`), each of the words may be old or new.
pub fn undo_plan(
    (address, kind, family): (RemoteAddr, SyncKind, Family),
    old: &[u8],
    new: &[u8],
    now: &[u8],
    is_partial: bool,
    waiters: Vec<Lwp>,
) -> Result<SetPlan, SetError> {
    let changed = SetError::Changed(address);
    if old.len() != new.len() || old.len() != now.len() || !old.len().is_multiple_of(4) {
        return Err(changed);
    }
    let word = |bytes: &[u8]| u32_at(bytes, 0).unwrap_or(0);
    let mut words = Vec::new();
    for (index, ((old, new), now)) in old.chunks(4).zip(new.chunks(4)).zip(now.chunks(4)).enumerate() {
        if now != new && !(is_partial && now == old) {
            return Err(changed);
        }
        if now != old {
            let address = address.offset(index as u64 * 4);
            words.push(WordWrite { address, field: "old", old: word(now), new: word(old) });
        }
    }
    let object = SyncObject::bare(address, kind, family, Evidence::Recorded);
    Ok(SetPlan { words, wakes: true, kick: waiters, ..empty_plan(&object, now, 0, "as before the change") })
}
