//! Stacks that are alike: thousands of threads wait in few ways, and one of each way is looked at closely.
//!
//! Two stacks are alike when each word is the same code address, points to the same place of the own stack,
//! or of the same lock, or is the same of the numbers that flags are made of. Other pointers and numbers may
//! differ.

use super::relevance::{NEAR, is_near};
use super::{RestingThread, WantedLock};
use crate::by_number::Mix;
use crate::model::{Family, SyncKind};
use crate::unwind::Space;
use std::hash::{Hash, Hasher};

/// How far from the stack pointer an address is taken to be on the same stack.
const OWN: u64 = 1 << 20;

#[derive(Hash)]
enum StackWord {
    Flag(u64),
    Code(u64),
    Own(u64),
    Lock(usize, u64, SyncKind, Family),
    Other,
}

/// A number that is the same for stacks that are alike.
pub(super) fn of(space: &Space<'_>, thread: &RestingThread, stack: &[u8], wanted: &[WantedLock]) -> u64 {
    let mut hash = Mix::default();
    (thread.pc, thread.start).hash(&mut hash);
    // Locks are told apart by when they first appear, so that threads are alike that do the same with others.
    let mut numbers: Vec<usize> = Vec::new();
    let mut lock_of = |addr: u64| {
        let distance = |index: &usize| wanted[*index].address.0.saturating_sub(addr);
        let lock = (0..wanted.len()).filter(|index| is_near(addr, &wanted[*index])).min_by_key(distance)?;
        let number = numbers.iter().position(|other| *other == lock).unwrap_or_else(|| {
            numbers.push(lock);
            numbers.len() - 1
        });
        let WantedLock { address, kind, family, .. } = wanted[lock];
        Some(StackWord::Lock(number, addr.wrapping_sub(address.0), kind, family))
    };
    for target in [thread.waits_on, thread.futex] {
        target.and_then(|target| lock_of(target.0)).hash(&mut hash);
    }
    let bounds = wanted.iter().map(|lock| lock.address.0);
    let (low, high) =
        (bounds.clone().min().unwrap_or(0).saturating_sub(NEAR), bounds.max().unwrap_or(0).saturating_add(NEAR));
    for word in stack.as_chunks().0.iter().copied().map(u64::from_le_bytes) {
        let own = word.wrapping_sub(thread.sp.0);
        let mut lock = || (low..high).contains(&word).then(|| lock_of(word)).flatten();
        let class = if word < 2 {
            StackWord::Flag(word)
        } else if word < 1 << 16 {
            StackWord::Other
        } else if let Some(lock) = lock() {
            lock
        } else if own < OWN || own.wrapping_neg() < OWN {
            StackWord::Own(own)
        } else if space.is_code(word) {
            StackWord::Code(word)
        } else {
            StackWord::Other
        };
        class.hash(&mut hash);
    }
    hash.finish()
}
