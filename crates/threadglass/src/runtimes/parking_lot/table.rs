//! The table of parked threads, which one static pointer of the program leads to.
//!
//! Symbols are not needed: the pointer is found by the shape of what it leads to, and what the table says of a thread
//! is believed only if the thread stands in the queue that its key belongs to.

use crate::RemoteAddr;
use crate::memory::{Memory, read_each, u32_at, u64_at};
use crate::proc::{MapEntry, map_at};
use crate::target::Target;

/// Bytes of data that are searched for the pointer.
const MAX_DATA: usize = 32 << 20;
/// Bytes that are read at once.
const PART: usize = 1 << 20;
/// Programs that contain several versions of the crate have several tables.
const MAX_TABLES: usize = 8;
/// Bytes of a table: its queues, their number, an older table, the bits of a hash.
const TABLE: usize = 32;
/// The most queues are 2 to the power of this.
const MAX_BITS: u32 = 24;
/// Bytes of a queue.
const BUCKET: u64 = 64;
/// What the crate keeps of a thread: the key first, then the next thread of the queue and two tokens.
const NEXT: u64 = 8;
const PARK_TOKEN: usize = 24;
/// How far the word that a thread sleeps on can be behind that: first without, then with the data that the crate keeps
/// to find deadlocks by itself.
const WORDS: [u64; 13] = [32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128];
/// Threads of one queue that are looked at.
const MAX_QUEUE: usize = 256;

/// A thread that stands in a queue of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParkedThread {
    /// What it waits for: the address of a lock, or the one behind it.
    pub(super) key: u64,
    /// What it told to whoever wakes it.
    pub(super) token: u64,
}

/// Where the program keeps the pointers to its tables.
#[derive(Debug, Default)]
pub(in crate::runtimes) struct TablePointers(Vec<RemoteAddr>);

impl TablePointers {
    /// Searches the data of all objects of `target` but its C library.
    pub(in crate::runtimes) fn find(target: &dyn Target) -> Self {
        let (mut found, mut left) = (Vec::new(), MAX_DATA);
        for map in data(target) {
            let mut at = map.start;
            while at < map.end && left > 0 && found.len() < MAX_TABLES && !target.limits().is_over() {
                let length = usize::try_from(map.end.0 - at.0).unwrap_or(PART).min(PART).min(left);
                left -= length;
                if let Ok(bytes) = target.read_vec(at, length) {
                    found.extend(pointers_in(target, at, &bytes));
                }
                at = at.offset(length as u64);
            }
        }
        found.truncate(MAX_TABLES);
        Self(found)
    }

    /// What the thread waits for that sleeps on `word`.
    pub(super) fn parked(&self, target: &dyn Memory, word: RemoteAddr) -> Option<ParkedThread> {
        self.0.iter().find_map(|pointer| {
            let (queues, bits) = table_at(target, RemoteAddr(target.read_u64(*pointer).ok()?))?;
            WORDS.iter().find_map(|offset| parked_in(target, queues, bits, word.checked_sub(*offset)?))
        })
    }
}

/// What the table that `pointer` leads to says of the thread that sleeps on `word`: the key it waits for, and its token.
#[cfg(feature = "internals")]
pub fn parked_at(memory: &dyn Memory, pointer: RemoteAddr, word: RemoteAddr) -> Option<(u64, u64)> {
    let parked = TablePointers(vec![pointer]).parked(memory, word)?;
    Some((parked.key, parked.token))
}

/// Writable data of objects, with what follows it without a file: variables that begin as 0.
fn data(target: &dyn Target) -> impl Iterator<Item = &MapEntry> {
    let maps = target.maps();
    let is_data = |map: &MapEntry| map.write && map.read && !map.shared;
    let is_of_object = move |map: &MapEntry| {
        let module = target.module_at(map.start);
        map.is_file() && is_data(map) && module.is_some_and(|module| !module.library().is_runtime())
    };
    maps.iter().enumerate().filter_map(move |(index, map)| {
        let before = index.checked_sub(1).map(|index| &maps[index]);
        let follows = |before: &MapEntry| before.end == map.start && is_of_object(before);
        let is_rest = map.name.is_empty() && is_data(map) && before.is_some_and(follows);
        (is_of_object(map) || is_rest).then_some(map)
    })
}

/// The addresses of those words of `bytes`, read at `at`, that lead to a table.
fn pointers_in(target: &dyn Target, at: RemoteAddr, bytes: &[u8]) -> Vec<RemoteAddr> {
    let maps = target.maps();
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).zip((at.0..).step_by(8));
    let is_data = |word: u64| map_at(maps, RemoteAddr(word)).is_some_and(|map| map.write && map.read);
    let likely: Vec<(u64, u64)> = words.filter(|(word, _)| *word != 0 && word % 8 == 0 && is_data(*word)).collect();
    let tables = read_each(target, likely.iter().map(|(word, _)| (RemoteAddr(*word), TABLE)));
    let is_table = |bytes: &[u8]| {
        // All of its queues are there.
        let last = |(queues, bits): (RemoteAddr, u32)| queues.0.checked_add(BUCKET << bits).map(|end| end - 1);
        decode(bytes).and_then(last).is_some_and(is_data)
    };
    let found = likely.into_iter().zip(tables).filter(|(_, bytes)| is_table(bytes));
    found.map(|((_, slot), _)| RemoteAddr(slot)).collect()
}

fn table_at(target: &dyn Memory, table: RemoteAddr) -> Option<(RemoteAddr, u32)> {
    decode(&target.read_vec(table, TABLE).ok()?)
}

/// The queues of a table, and the bits of the hash by which they are chosen.
fn decode(table: &[u8]) -> Option<(RemoteAddr, u32)> {
    let (queues, count) = (u64_at(table, 0)?, u64_at(table, 8)?);
    // Which of the two others comes first is the compiler's choice.
    let bits = count.trailing_zeros();
    let has_bits = [16, 24].into_iter().any(|at| u32_at(table, at) == Some(bits));
    let fits = count.is_power_of_two() && (1..=MAX_BITS).contains(&bits) && queues != 0 && queues % BUCKET == 0;
    (fits && has_bits).then_some((RemoteAddr(queues), bits))
}

/// The queue of `key`.
fn bucket(queues: RemoteAddr, bits: u32, key: u64) -> Option<RemoteAddr> {
    let index = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 64u32.checked_sub(bits)?;
    queues.0.checked_add(index.checked_mul(BUCKET)?).map(RemoteAddr)
}

/// What the crate has of a thread at `data`, if that thread is in its queue.
fn parked_in(target: &dyn Memory, queues: RemoteAddr, bits: u32, data: RemoteAddr) -> Option<ParkedThread> {
    let bytes = target.read_vec(data, PARK_TOKEN + 8).ok()?;
    let parked = ParkedThread { key: u64_at(&bytes, 0)?, token: u64_at(&bytes, PARK_TOKEN)? };
    let bucket = bucket(queues, bits, parked.key).filter(|_| parked.key != 0)?;
    let bytes = target.read_vec(bucket, BUCKET as usize).ok()?;
    // The queue's ends are two of its words.
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).filter(|word| *word != 0 && word % 8 == 0);
    words.into_iter().any(|first| is_queued(target, first, data)).then_some(parked)
}

/// Whether the thread with `data` is behind the one at `first`.
fn is_queued(target: &dyn Memory, first: u64, data: RemoteAddr) -> bool {
    let mut at = first;
    for _ in 0..MAX_QUEUE {
        if at == data.0 {
            return true;
        }
        let next = RemoteAddr(at).0.checked_add(NEXT).map(RemoteAddr).and_then(|next| target.read_u64(next).ok());
        match next.filter(|next| *next != 0 && next % 8 == 0) {
            Some(next) => at = next,
            None => return false,
        }
    }
    // Too long to be followed to its end.
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const QUEUES: u64 = 0x10000;
    const THREADS: u64 = 0x20000;

    /// A table of 4 queues; in the one of `key` stand the threads at `threads`.
    fn target(key: u64, threads: &[u64]) -> Bytes {
        let put = |bytes: &mut [u8], at: u64, word: u64| {
            bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        };
        let mut table = vec![0; 0x40];
        for (at, word) in [(0, 0x1010), (0x10, QUEUES), (0x18, 4), (0x28, 2)] {
            put(&mut table, at, word);
        }
        let mut queues = vec![0; 4 * 64];
        let at = bucket(RemoteAddr(0), 2, key).unwrap().0;
        put(&mut queues, at + 8, threads[0]);
        let mut memory = vec![0; 0x1000];
        for (index, thread) in threads.iter().enumerate() {
            put(&mut memory, thread - THREADS, key);
            put(&mut memory, thread - THREADS + NEXT, threads.get(index + 1).copied().unwrap_or(0));
            put(&mut memory, thread - THREADS + 24, 16);
        }
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), table);
        target.map(RemoteAddr(QUEUES), queues);
        target.map(RemoteAddr(THREADS), memory);
        target
    }

    #[test]
    fn threads_are_found_in_the_queue_of_their_key() {
        let target = target(0x5550, &[THREADS + 0x100, THREADS + 0x200]);
        let tables = TablePointers(vec![RemoteAddr(0x1000)]);
        let parked = Some(ParkedThread { key: 0x5550, token: 16 });
        assert_eq!(tables.parked(&target, RemoteAddr(THREADS + 0x120)), parked, "the first");
        assert_eq!(tables.parked(&target, RemoteAddr(THREADS + 0x248)), parked, "the next, with more data");
        assert_eq!(tables.parked(&target, RemoteAddr(THREADS + 0x320)), None, "no thread");
    }

    #[test]
    fn what_is_in_no_queue_is_not_believed() {
        let target = target(0x5550, &[THREADS + 0x100]);
        let tables = TablePointers(vec![RemoteAddr(0x1000)]);
        assert_eq!(tables.parked(&target, RemoteAddr(THREADS + 0x220)), None);
        assert_eq!(TablePointers(vec![RemoteAddr(0x1008)]).parked(&target, RemoteAddr(THREADS + 0x120)), None);
    }

    #[test]
    fn a_queue_that_is_a_circle_ends() {
        let target = target(0x5550, &[THREADS + 0x100, THREADS + 0x100]);
        let tables = TablePointers(vec![RemoteAddr(0x1000)]);
        assert!(tables.parked(&target, RemoteAddr(THREADS + 0x120)).is_some());
    }
}
