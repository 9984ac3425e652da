//! musl's ring of threads, HotSpot's table of its own structures and the lock of a Python interpreter, of any words: reading them
//! ends, no thread comes out twice, and nobody has a lock who is no thread.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use threadglass::RemoteAddr;
use threadglass::internals::fuzzed::{gil_owner, java_member, musl_threads};
use threadglass::target::Bytes;
use threadglass_fuzz::object::Claim;

const THREADS: u64 = 0x1_0000;
const THREAD: u64 = 0x100;
const TABLE: u64 = 0x2_0000;
const NAMES: u64 = 0x3_0000;
const LOCK: u64 = 0x4_0000;
const STATE: u64 = 0x5_0000;

fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Of each thread its own address, the one before and the one after; the entries of the table; names; the words of the lock and
/// of the state of the thread that has it; which of the two places has a thread's id.
type Input = (Vec<[Claim; 3]>, Vec<[Claim; 6]>, Vec<u8>, [Claim; 11], Vec<Claim>, bool);

fuzz_target!(|input: Input| {
    let (threads, entries, names, lock, state, newer) = input;
    let mut memory = Bytes::default();
    let count = threads.len() as u64;
    let place = |index: u64| THREADS + THREAD * (index % count.max(1));
    for (index, [own, before, after]) in (0..).zip(&threads) {
        let base = place(index);
        let links = [own.or(base), 0, before.or(place(index + count - 1)), after.or(place(index + 1))];
        let mut bytes = words(links);
        bytes.resize(THREAD as usize, index as u8);
        memory.map(RemoteAddr(base), bytes);
    }
    let tid = if newer { 48 } else { 56 };
    let (found, is_whole) = musl_threads(&memory, tid, RemoteAddr(THREADS));
    let distinct: HashSet<_> = found.iter().collect();
    assert_eq!(distinct.len(), found.len(), "a thread was found twice");
    assert!(found.len() <= threads.len() && (!is_whole || !found.is_empty()));

    memory.map(RemoteAddr(TABLE - 8), words([TABLE]));
    let entry =
        |entry: &[Claim; 6]| words([0, 6, 12, 0, 24, 0].into_iter().zip(entry).map(|(right, it)| it.or(NAMES + right)));
    memory.map(RemoteAddr(TABLE), entries.iter().flat_map(entry).collect());
    memory.map(RemoteAddr(NAMES), [b"Thread\0_list\0", names.as_slice()].concat());
    let _ = java_member(&memory, RemoteAddr(TABLE - 8), "Thread", "_list");

    // The time, who had it last, whether somebody has it.
    let right = [5000, STATE, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    memory.map(RemoteAddr(LOCK), words(lock.iter().zip(right).map(|(claim, right)| claim.or(right))));
    memory.map(RemoteAddr(STATE), words(state.iter().map(|claim| claim.or(THREADS))));
    let is_thread = |id: RemoteAddr| id.0.wrapping_sub(THREADS) < THREAD * count;
    let owner = gil_owner(&memory, RemoteAddr(LOCK), &is_thread);
    assert!(owner.is_none_or(is_thread), "a lock of a stranger");
});
