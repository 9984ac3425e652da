//! The locks and channels that goroutines wait for, and what they say of themselves.

use super::offsets::Layout;
use crate::by_number::ByAddress;
use crate::memory::{Memory, read_each, u32_at, u64_at};
use crate::model::{Detail, Family, Preference, SyncKind, SyncObject, SyncState, Task, TaskRef, TaskWaitsFor};

const LOCKED: u32 = 1;

/// The objects that `tasks` wait for, by address, with those who wait.
pub(super) fn of(memory: &dyn Memory, layout: &Layout, tasks: &[Task]) -> Vec<SyncObject> {
    let mut places: ByAddress<usize> = ByAddress::default();
    let mut objects: Vec<SyncObject> = Vec::new();
    for task in tasks {
        for waits in task.wait.iter().flat_map(|wait| &wait.objects) {
            let place = *places.entry(waits.address.0).or_insert(objects.len());
            if place == objects.len() {
                objects.push(SyncObject::bare(waits.address, waits.kind, Family::Go, waits.evidence));
            }
            objects[place].waiting_tasks.push(waiter(task, waits));
        }
    }
    objects.sort_unstable_by_key(|object| object.address);
    let bytes = read_each(memory, objects.iter().map(|object| (object.address, size_of(object.kind, layout))));
    for (object, bytes) in objects.iter_mut().zip(bytes) {
        object.size = Some(size_of(object.kind, layout) as u64);
        object.shared = Some(false);
        if let Some((state, detail)) = decode(object.kind, &bytes, layout) {
            (object.state, object.detail) = (state, detail);
        }
    }
    objects
}

fn waiter(task: &Task, waits: &TaskWaitsFor) -> TaskRef {
    TaskRef { task: task.id, side: waits.side, channel_use: waits.channel_use, evidence: waits.evidence, why: None }
}

fn size_of(kind: SyncKind, layout: &Layout) -> usize {
    match kind {
        SyncKind::Channel => layout.channel.senders + 16,
        SyncKind::Rwlock => 24,
        SyncKind::Cond => 56,
        SyncKind::Once | SyncKind::WaitGroup => 12,
        SyncKind::Semaphore => 4,
        _ => 8,
    }
}

/// What the `bytes` of an object say.
pub(super) fn decode(kind: SyncKind, bytes: &[u8], layout: &Layout) -> Option<(SyncState, Detail)> {
    let is_locked = |word: u32| if word & LOCKED == 0 { SyncState::Unlocked } else { SyncState::Locked };
    Some(match kind {
        SyncKind::Channel => {
            let closed = u32_at(bytes, layout.channel.closed)? != 0;
            let (queued, capacity) = (u64_at(bytes, 0)?, u64_at(bytes, layout.channel.capacity)?);
            (SyncState::Waiting, Detail::Channel { queued, capacity, closed })
        }
        SyncKind::Mutex => (is_locked(u32_at(bytes, 0)?), Detail::None {}),
        SyncKind::Rwlock => {
            // A writer takes 2^30 off the count of readers, and counts those that it has to wait for.
            let (count, leaving) = (u32_at(bytes, 16)? as i32, u32_at(bytes, 20)? as i32);
            let readers = if count < 0 { leaving } else { count };
            let state = match (count < 0, readers) {
                (true, ..=0) => SyncState::WriteLocked,
                (false, ..=0) => SyncState::Unlocked,
                (_, 1..) => SyncState::ReadLocked,
            };
            let writer_queued = count < 0 && readers > 0;
            let detail = Detail::Rwlock {
                preference: Preference::WriterNonrecursive,
                readers: u32::try_from(readers).unwrap_or(0),
                writer_queued,
            };
            (state, detail)
        }
        SyncKind::Once => {
            let state = match (u32_at(bytes, 0)?, u32_at(bytes, 4)? & LOCKED) {
                (0, 0) => SyncState::New,
                (0, _) => SyncState::InProgress,
                _ => SyncState::Done,
            };
            (state, Detail::None {})
        }
        // The count is in the upper half.
        SyncKind::WaitGroup => (SyncState::Waiting, Detail::WaitGroup { left: u32_at(bytes, 4)? as i32 }),
        SyncKind::Semaphore => {
            let count = u32_at(bytes, 0)?;
            let state = if count == 0 { SyncState::Exhausted } else { SyncState::Available };
            (state, Detail::Semaphore { count })
        }
        SyncKind::Cond => (SyncState::Waiting, Detail::None {}),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::go::offsets::KNOWN;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn states_of_locks() {
        let state = |kind, content: &[u32]| decode(kind, &words(content), &KNOWN[0]).unwrap().0;
        assert_eq!(state(SyncKind::Mutex, &[0, 0]), SyncState::Unlocked);
        assert_eq!(state(SyncKind::Mutex, &[9, 0]), SyncState::Locked);
        let rwlock = |count: i32, leaving: i32| state(SyncKind::Rwlock, &[0, 0, 0, 0, count as u32, leaving as u32]);
        assert_eq!(rwlock(0, 0), SyncState::Unlocked);
        assert_eq!(rwlock(2, 0), SyncState::ReadLocked);
        assert_eq!(rwlock(-(1 << 30), 0), SyncState::WriteLocked);
        assert_eq!(rwlock(1 - (1 << 30), 1), SyncState::ReadLocked, "a writer waits for a reader");
        assert_eq!(rwlock(1 - (1 << 30), 0), SyncState::WriteLocked, "a reader waits for the writer");
        assert_eq!(state(SyncKind::Once, &[0, 1, 0]), SyncState::InProgress);
        assert_eq!(decode(SyncKind::Rwlock, &[0; 20], &KNOWN[0]), None);
    }
}
