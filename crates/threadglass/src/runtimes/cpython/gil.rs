//! The lock of the interpreter: a flag with a mutex and a condition variable, and the thread that took it last.

use crate::RemoteAddr;
use crate::memory::{Memory, u32_at, u64_at};
use crate::model::{Detail, Family, SyncKind, SyncState};
use crate::runtimes::languages::Loaded;
use crate::runtimes::{Class, Content, Context, Owner};

/// What is read of it: from the time after which a thread asks for it (in microseconds) to its mutex. This part is the same
/// in all versions since 3.7; what lies before it is not.
pub(super) const SIZE: usize = 84;
const INTERVAL: usize = 0;
const LAST_HOLDER: usize = 8;
const LOCKED: usize = 16;
const COND: u64 = 32;
/// The word of its mutex.
const MUTEX: usize = 80;

/// No program sets more than this.
const MAX_INTERVAL: u64 = 60_000_000;

/// Bytes of a thread's state that are searched for its id. It is within the first 250 in all versions since 3.7.
const THREAD_STATE: usize = 512;

/// How often the lock is read until nobody is about to change it.
const TRIES: usize = 4;

/// Whether a thread's descriptor begins there.
pub(super) type IsThread<'a> = &'a dyn Fn(RemoteAddr) -> bool;

/// What a thread waits for that waits for the condition variable `class`, if that is the one of the lock.
pub(super) fn of_cond(class: &Class, python: &Loaded, context: &Context<'_>) -> Option<Class> {
    let address = class.address.checked_sub(COND)?;
    let bytes = context.target.read_vec(address, SIZE).ok()?;
    let interval = u64_at(&bytes, INTERVAL)?;
    let holder = RemoteAddr(u64_at(&bytes, LAST_HOLDER)?);
    let is_thread = |id| context.is_descriptor(id);
    let fits = (1..=MAX_INTERVAL).contains(&interval) && u32_at(&bytes, LOCKED)? <= 1;
    let is_in_runtime = class.address.0.wrapping_sub(python.symbol.0) < python.symbol_size;
    // An interpreter may have a lock of its own, on the heap: then the one who has it must be a thread.
    let is_lock = fits && (is_in_runtime || thread_of(context.target, holder, &is_thread).is_some());
    is_lock.then(|| Class::new(SyncKind::Mutex, Family::Gil, address, class.evidence))
}

/// What the lock says, at a moment at which nobody changes it: whoever does has its mutex.
pub(super) fn decode(memory: &dyn Memory, address: RemoteAddr, bytes: &[u8], is_thread: IsThread<'_>) -> Content {
    let mut bytes = bytes.to_vec();
    let mut owner = Owner::None;
    for _ in 0..TRIES {
        let is_at_rest = u32_at(&bytes, MUTEX) == Some(0);
        let found = u64_at(&bytes, LAST_HOLDER).and_then(|holder| thread_of(memory, RemoteAddr(holder), is_thread));
        let Ok(again) = memory.read_vec(address, SIZE) else { break };
        let is_same = again[..COND as usize] == bytes[..COND as usize];
        if is_at_rest && is_same {
            owner = found.filter(|_| is_locked(&bytes)).map_or(Owner::None, Owner::Thread);
            break;
        }
        bytes = again;
    }
    let state = if is_locked(&bytes) { SyncState::Locked } else { SyncState::Unlocked };
    let plain = Content::plain(&bytes, None, state, Detail::None {});
    Content { owner, shared: Some(false), ..plain }
}

fn is_locked(bytes: &[u8]) -> bool {
    u32_at(bytes, LOCKED) == Some(1)
}

/// The thread whose state is at `state`, by its id. Where that is differs from version to version, but nothing else in there
/// is the descriptor of a thread.
fn thread_of(memory: &dyn Memory, state: RemoteAddr, is_thread: IsThread<'_>) -> Option<RemoteAddr> {
    let bytes = memory.read_up_to(state, THREAD_STATE).ok().filter(|_| state.0 != 0)?;
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).map(RemoteAddr);
    let mut ids = words.filter(|word| is_thread(*word));
    let id = ids.next()?;
    ids.all(|other| other == id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const LOCK: RemoteAddr = RemoteAddr(0x1000);
    const STATE: u64 = 0x2000;

    /// A lock, and the state of a thread with these words.
    fn memory(holder: u64, locked: u32, mutex: u32, state: &[u64]) -> Bytes {
        let mut lock = vec![0; SIZE];
        lock[LAST_HOLDER..LAST_HOLDER + 8].copy_from_slice(&holder.to_le_bytes());
        lock[LOCKED..LOCKED + 4].copy_from_slice(&locked.to_le_bytes());
        lock[MUTEX..].copy_from_slice(&mutex.to_le_bytes());
        let mut memory = Bytes::default();
        memory.map(LOCK, lock);
        memory.map(RemoteAddr(STATE), state.iter().flat_map(|word| word.to_le_bytes()).collect());
        memory
    }

    fn decoded(memory: &Bytes) -> (SyncState, Owner) {
        let bytes = memory.read_vec(LOCK, SIZE).unwrap();
        let content = decode(memory, LOCK, &bytes, &|id| id.0 == 0x7000 || id.0 == 0x8000);
        (content.state, content.owner)
    }

    #[test]
    fn who_has_it() {
        let owner = Owner::Thread(RemoteAddr(0x7000));
        assert_eq!(decoded(&memory(STATE, 1, 0, &[1, 2, 0x7000, 3])), (SyncState::Locked, owner));
        assert_eq!(decoded(&memory(STATE, 0, 0, &[1, 0x7000])), (SyncState::Unlocked, Owner::None));
        assert_eq!(decoded(&memory(STATE, 1, 2, &[1, 0x7000])), (SyncState::Locked, Owner::None), "it changes hands");
        assert_eq!(
            decoded(&memory(STATE, 1, 0, &[0x7000, 0x8000])),
            (SyncState::Locked, Owner::None),
            "of two threads"
        );
        assert_eq!(decoded(&memory(STATE, 1, 0, &[1, 2])), (SyncState::Locked, Owner::None), "of none");
        assert_eq!(decoded(&memory(u64::MAX, 1, 0, &[])), (SyncState::Locked, Owner::None), "nowhere");
    }
}
