//! parking_lot's table of parked threads, of any words: following it ends, and a thread is in the queue of its key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::fuzzed::parked_at;
use threadglass::target::Bytes;
use threadglass_fuzz::object::Claim;

const POINTER: u64 = 0x1000;
const TABLE: u64 = 0x2000;
const QUEUES: u64 = 0x1_0000;
const THREADS: u64 = 0x2_0000;
const BITS: u32 = 2;

fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The pointer, the four words of the table, the words of its queues and of the threads, and what each thread sleeps on.
type Input = (Claim, [Claim; 4], Vec<Claim>, Vec<Claim>, Vec<u16>);

fuzz_target!(|input: Input| {
    let (pointer, table, queues, threads, sleepers) = input;
    let mut memory = Bytes::default();
    memory.map(RemoteAddr(POINTER), words([pointer.or(TABLE)]));
    let right = [QUEUES, 1 << BITS, 0, u64::from(BITS)];
    memory.map(RemoteAddr(TABLE), words(table.iter().zip(right).map(|(claim, right)| claim.or(right))));
    // Queues and threads lead to threads.
    let place = |index: usize| THREADS + 64 * (index as u64 % 8);
    let chain = |claims: &[Claim]| words(claims.iter().enumerate().map(|(index, claim)| claim.or(place(index))));
    let (queue_words, thread_words) = (chain(&queues), chain(&threads));
    memory.map(RemoteAddr(QUEUES), queue_words);
    memory.map(RemoteAddr(THREADS), thread_words.clone());
    for sleeper in sleepers.iter().take(64) {
        let word = RemoteAddr(THREADS + u64::from(*sleeper) * 4);
        let Some((key, token)) = parked_at(&memory, RemoteAddr(POINTER), word) else { continue };
        assert_ne!(key, 0);
        let has = |number: u64| thread_words.windows(8).any(|window| window == number.to_le_bytes());
        assert!(has(key) && has(token), "made up");
    }
});
