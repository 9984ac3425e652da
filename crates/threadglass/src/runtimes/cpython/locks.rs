//! What a Python thread waits for on a semaphore: a lock, a reentrant lock, a queue.

use crate::RemoteAddr;
use crate::elf::Image;
use crate::memory::{Memory, read_each, u64_at};
use crate::model::{Family, SyncKind};
use crate::runtimes::languages::Loaded;
use crate::runtimes::{Class, Context, SeenWait};

/// Words of a stack that may lead to the object that a thread waits for.
const MAX_WORDS: usize = 192;
/// The head of an object: a count of references, and its type. The lock is the next word.
const TYPE: u64 = 8;
const HEAD: u64 = 16;
/// Where a type has the pointer to its name.
const TYPE_NAME: u64 = 24;
/// Bytes of a name that are read.
const NAME: usize = 24;
/// Since 3.13 a thread waits on a semaphore in its own frame, behind the address of what it waits for.
const PARKED_FOR: u64 = 8;
/// As far from the stack pointer is that frame.
const NEAR: u64 = 4096;

/// What `class`, a semaphore that a thread waits for, is to Python.
pub(super) fn of_semaphore(
    class: &Class,
    seen: &SeenWait<'_>,
    python: &Loaded,
    context: &Context<'_>,
) -> Option<Class> {
    let semaphore = class.address;
    let caller = seen.call.map(|call| call.address).filter(|caller| python.module.contains(caller))?;
    let lock = |kind, address| Class::new(kind, Family::Python, address, class.evidence);
    if semaphore.0.wrapping_sub(seen.sp.0) < NEAR {
        let address = RemoteAddr(context.target.read_u64(semaphore.checked_sub(PARKED_FOR)?).ok()?);
        context.target.read_up_to(address, 1).ok().filter(|bytes| !bytes.is_empty())?;
        let object = address.checked_sub(HEAD);
        return Some(match object.and_then(|object| kind_of(context.target, object)) {
            Some(SyncKind::Mutex) => lock(SyncKind::Mutex, object?),
            Some(kind) => lock(kind, address),
            None => lock(SyncKind::Semaphore, address),
        });
    }
    match objects_with(context.target, semaphore, seen.words).as_slice() {
        [(object, SyncKind::Mutex)] => Some(lock(SyncKind::Mutex, *object)),
        [(_, kind)] => Some(lock(*kind, semaphore)),
        // Two cannot have one semaphore: one of them was another object before.
        [_, ..] => Some(lock(SyncKind::Semaphore, semaphore)),
        // A program that contains Python may use semaphores itself.
        [] => is_in_acquire(caller, python, context).then(|| lock(SyncKind::Semaphore, semaphore)),
    }
}

/// The Python objects that `words` lead to and that have this semaphore.
fn objects_with(memory: &dyn Memory, semaphore: RemoteAddr, words: &[u64]) -> Vec<(RemoteAddr, SyncKind)> {
    let mut words: Vec<RemoteAddr> = words.iter().take(MAX_WORDS).map(|word| RemoteAddr(*word)).collect();
    words.retain(|word| word.0 % 8 == 0 && word.0 > 0xffff);
    words.sort_unstable();
    words.dedup();
    let heads = read_each(memory, words.iter().map(|word| (*word, 24)));
    let leads_there = |head: &Vec<u8>| u64_at(head, HEAD as usize) == Some(semaphore.0) && is_alive(head);
    let objects = words.iter().zip(heads).filter(|(_, head)| leads_there(head));
    objects.filter_map(|(object, _)| Some((*object, kind_of(memory, *object)?))).collect()
}

/// Whether an object that begins with `head` has not been freed: the allocator puts a pointer over its count of references,
/// which fills only the lower half of the word (the upper half has flags in the newest versions, at its end).
fn is_alive(head: &[u8]) -> bool {
    u64_at(head, 0).is_some_and(|count| count as u32 != 0 && count >> 32 & 0xffff == 0)
}

/// What the Python object at `address` is to threads, by the name of its type.
fn kind_of(memory: &dyn Memory, address: RemoteAddr) -> Option<SyncKind> {
    let class = memory.read_u64(address.checked_add(TYPE)?).ok()?;
    let name = memory.read_u64(RemoteAddr(class).checked_add(TYPE_NAME)?).ok()?;
    let name = memory.read_up_to(RemoteAddr(name), NAME).ok()?;
    match name.split(|byte| *byte == 0).next()? {
        b"_thread.RLock" => Some(SyncKind::Mutex),
        b"_thread.lock" => Some(SyncKind::Semaphore),
        b"_queue.SimpleQueue" => Some(SyncKind::Cond),
        _ => None,
    }
}

/// Whether `caller` is in Python's function that takes locks.
fn is_in_acquire(caller: RemoteAddr, python: &Loaded, context: &Context<'_>) -> bool {
    let image = Image::load(context.target, python.module.start).ok();
    let names = ["PyThread_acquire_lock_timed", "PyThread_acquire_lock"];
    names.iter().any(|name| {
        let function = image.as_ref().and_then(|image| image.find_export(context.target, name));
        function.is_some_and(|function| caller.0.wrapping_sub(function.addr.0) <= function.size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const SEMAPHORE: RemoteAddr = RemoteAddr(0x50_0000);
    const TYPES: u64 = 0x20_0000;
    const NAMES: u64 = 0x30_0000;

    /// Types with the names of a reentrant lock, a plain one and another thing, and an object of each word triple.
    fn memory(objects: &[(u64, [u64; 3])]) -> Bytes {
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(NAMES), b"_thread.RLock\0\0\0_thread.lock\0\0\0\0Mine.RLock\0".to_vec());
        for number in 0..3 {
            let class = [0, 0, 0, NAMES + number * 16];
            memory.map(RemoteAddr(TYPES + number * 64), class.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
        for (at, words) in objects {
            memory.map(RemoteAddr(*at), words.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
        memory
    }

    #[test]
    fn objects_that_a_stack_leads_to() {
        let has = SEMAPHORE.0;
        let freed = 0x7f12_3456_7890;
        let all = [
            (0x10_0000, [2, TYPES, has]),
            (0x11_0000, [2, TYPES, has + 8]),
            (0x12_0000, [freed, TYPES, has]),
            (0x13_0000, [0, TYPES, has]),
            (0x14_0000, [1, TYPES + 128, has]),
            (0x15_0000, [1, u64::MAX - 4, has]),
            (0x16_0000, [1, TYPES + 64, has]),
        ];
        let memory = memory(&all);
        let found = |words: &[u64]| objects_with(&memory, SEMAPHORE, words);
        let words: Vec<u64> = all[..6].iter().map(|(at, _)| *at).chain([7, u64::MAX, u64::MAX - 7, has]).collect();
        assert_eq!(found(&words), [(RemoteAddr(0x10_0000), SyncKind::Mutex)]);
        assert_eq!(found(&[0x16_0000, 0x16_0000]), [(RemoteAddr(0x16_0000), SyncKind::Semaphore)]);
        assert_eq!(found(&[]), []);
    }
}
