//! Everything but mutexes.

use super::{MAX_WAITERS, size_of};
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::{Detail, Preference, SyncKind, SyncState};
use crate::runtimes::musl::own_stack::nodes_of;
use crate::runtimes::{Content, u32_at, u64_at};

/// Set in the word of a lock that is waited for.
const WAITERS: u32 = 1 << 31;
/// In place of the number of readers: written.
const WRITTEN: u32 = WAITERS - 1;
/// What marks an object as private to the process or as shared.
const SHARED: u32 = 128;

fn sized(kind: SyncKind) -> Option<u64> {
    Some(size_of(kind) as u64)
}

/// `pthread_rwlock_t`: readers are let in while writers wait.
pub(crate) fn rwlock(bytes: &[u8]) -> Option<Content> {
    let (lock, waiters, shared) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let (state, readers) = match lock & WRITTEN {
        0 => (SyncState::Unlocked, 0),
        WRITTEN => (SyncState::WriteLocked, 0),
        readers => (SyncState::ReadLocked, readers),
    };
    let writer_queued = lock & WAITERS != 0 && state == SyncState::ReadLocked;
    let detail = Detail::Rwlock { preference: Preference::Reader, readers, writer_queued };
    Some(Content {
        shared: Some(shared == SHARED),
        has_waiters: lock & WAITERS != 0 || waiters != 0,
        is_plausible: readers < MAX_WAITERS && waiters < MAX_WAITERS && matches!(shared, 0 | SHARED),
        ..Content::plain(bytes, sized(SyncKind::Rwlock), state, detail)
    })
}

/// `sem_t`. Up to 1.2.3 the count is -1 while somebody waits; since then a bit says so.
pub(crate) fn semaphore(bytes: &[u8]) -> Option<Content> {
    let (value, waiters, private) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let count = if value == u32::MAX { 0 } else { value & !WAITERS };
    let state = if count == 0 { SyncState::Exhausted } else { SyncState::Available };
    Some(Content {
        shared: Some(private == 0),
        has_waiters: value & WAITERS != 0 || waiters != 0,
        is_plausible: waiters < MAX_WAITERS && matches!(private, 0 | SHARED),
        ..Content::plain(bytes, sized(SyncKind::Semaphore), state, Detail::Semaphore { count })
    })
}

/// `pthread_barrier_t`: the first thread to come keeps the count on its stack.
pub(crate) fn barrier(bytes: &[u8], memory: &dyn Memory) -> Option<Content> {
    let (limit, count, instance) = (u32_at(bytes, 8)?, u32_at(bytes, 12)?, u64_at(bytes, 24)?);
    let is_shared = limit & WAITERS != 0;
    let arrived = match (is_shared, instance) {
        (true, _) => count,
        (false, 0) => 0,
        (false, instance) => memory.read_u32(RemoteAddr(instance)).ok()?.saturating_add(1),
    };
    let needed = (limit & !WAITERS).saturating_add(1);
    let state = if arrived == 0 { SyncState::Idle } else { SyncState::Waiting };
    Some(Content {
        shared: Some(is_shared),
        has_waiters: arrived != 0,
        is_plausible: arrived <= needed && needed < MAX_WAITERS,
        ..Content::plain(bytes, sized(SyncKind::Barrier), state, Detail::Barrier { needed, arrived })
    })
}

/// `pthread_cond_t`: waiters stand in a list of nodes on their stacks; where processes share it, they are counted.
pub(crate) fn cond(bytes: &[u8], memory: &dyn Memory) -> Option<Content> {
    let is_shared = u64_at(bytes, 0)? != 0;
    let inside = match is_shared {
        true => u32_at(bytes, 12)? & !WAITERS,
        false => nodes_of(memory, u64_at(bytes, 8)?, u64_at(bytes, 40)?).map_or(0, |nodes| nodes.len() as u32),
    };
    let state = if inside == 0 { SyncState::Idle } else { SyncState::Waiting };
    Some(Content {
        shared: Some(is_shared),
        has_waiters: inside != 0,
        is_plausible: inside < MAX_WAITERS,
        ..Content::plain(bytes, sized(SyncKind::Cond), state, Detail::Cond { inside, mutex: None })
    })
}

/// `pthread_once_t`: 1 while somebody is at it, 3 while others wait for that, 2 when it is done.
pub(crate) fn once(bytes: &[u8]) -> Option<Content> {
    let value = u32_at(bytes, 0)?;
    let state = match value {
        0 => SyncState::New,
        1 | 3 => SyncState::InProgress,
        2 => SyncState::Done,
        _ => SyncState::Unknown,
    };
    Some(Content {
        has_waiters: value == 3,
        is_plausible: value <= 3,
        ..Content::plain(bytes, sized(SyncKind::Once), state, Detail::Futex { value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    fn bytes(words: &[u32]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(56, 0);
        bytes
    }

    #[test]
    fn rwlocks() {
        let state = |word| rwlock(&bytes(&[word, 0, 0])).unwrap().state;
        assert_eq!(
            (state(0), state(1), state(0x8000_0002)),
            (SyncState::Unlocked, SyncState::ReadLocked, SyncState::ReadLocked)
        );
        assert_eq!((state(0x7fff_ffff), state(u32::MAX)), (SyncState::WriteLocked, SyncState::WriteLocked));
        assert!(!rwlock(&bytes(&[1, 0, 7])).unwrap().is_plausible);
    }

    #[test]
    fn semaphores_old_and_new() {
        let count = |word| match semaphore(&bytes(&[word, 1, 128])).unwrap().detail {
            Detail::Semaphore { count } => count,
            _ => unreachable!(),
        };
        assert_eq!((count(u32::MAX), count(0x8000_0000), count(3), count(0x8000_0001)), (0, 0, 3, 1));
    }

    #[test]
    fn barriers_whose_count_is_elsewhere() {
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(0x1000), bytes(&[1, 0, 0, 0]));
        let content = barrier(&bytes(&[0, 0, 3, 0, 0, 0, 0x1000, 0]), &memory).unwrap();
        assert_eq!(content.detail, Detail::Barrier { needed: 4, arrived: 2 });
        assert!(barrier(&bytes(&[0, 0, 3, 0, 0, 0, 0x9000, 0]), &memory).is_none(), "not to be read");
        assert!(!barrier(&bytes(&[0, 0, 0, 0, 0, 0, 0x1000, 0]), &memory).unwrap().is_plausible, "more than come");
    }
}
