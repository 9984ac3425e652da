//! Abseil: a mutex and a condition variable of one word each, which leads to a ring of those who wait. Each thread
//! sleeps on a word of its own.

use super::{Class, Content, Context, Effect, Function, LockWord, Runtime, SeenWait, Spot, WaitWords, u64_at};
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::{Detail, Evidence, Family, SyncKind, SyncState};
use crate::proc::map_at;

/// Of the word of a mutex: bits below the address of a waiter.
const FLAGS: u64 = 0xff;
const READER: u64 = 1;
const WAITED_FOR: u64 = 4;
const WRITER: u64 = 8;
/// What Abseil keeps of a thread is aligned to this; the word that the thread sleeps on is not far behind.
const IDENTITY: u64 = 256;
const REACH: u64 = 4;
/// Waiters of one lock that are followed.
const MAX_RING: usize = 4096;
/// Words of a stack that are tried.
const MAX_WORDS: usize = 512;

pub(crate) struct Absl;

impl Runtime for Absl {
    fn families(&self) -> &'static [Family] {
        &[Family::Absl]
    }

    /// The functions tell what a thread waits for, but not where: the address is on its stack, and the thread is in the
    /// ring of what is there.
    fn by_function(&self, seen: &SeenWait<'_>, spot: Spot<'_>, context: &Context<'_>) -> Option<Class> {
        let Spot::Outer { function, .. } = spot else { return None };
        let kind = match function.strip_prefix("absl::")? {
            method if method.contains("CondVar::") => SyncKind::Cond,
            method if method.contains("Mutex::") => SyncKind::Mutex,
            _ => return None,
        };
        let address = lock_of(seen, kind, context)?;
        Some(Class::new(kind, Family::Absl, address, Evidence::Derived))
    }

    fn waits_in(&self, name: &str) -> Option<WaitWords> {
        if name.starts_with("AbslInternalPerThreadSem") {
            return Some(WaitWords::Part);
        }
        // A version may stand in front of the class.
        let method = name.strip_prefix("absl::")?.split('(').next()?;
        let is = |part: &str| method.contains(part);
        Some(match () {
            () if is("Notification::WaitFor") => WaitWords::Named("for a Notification (Abseil)"),
            () if is("BlockingCounter::Wait") => WaitWords::Named("for a BlockingCounter (Abseil)"),
            () if is("Barrier::Block") => WaitWords::Named("at a Barrier (Abseil)"),
            () if is("Mutex::Await") || is("Mutex::LockWhen") || is("Mutex::ReaderLockWhen") => {
                WaitWords::Named("until a Condition is true (Abseil)")
            }
            () if is("Mutex::") || is("CondVar::") || is("synchronization_internal::") => WaitWords::Part,
            () => return None,
        })
    }

    fn bytes_of(&self, _: SyncKind, _: Family) -> usize {
        8
    }

    fn decode(&self, class: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let word = u64_at(bytes, 0).unwrap_or(0);
        let state = match (class.kind, word & WRITER != 0, word & READER != 0) {
            (SyncKind::Cond, ..) => SyncState::Waiting,
            (_, true, _) => SyncState::Locked,
            (_, false, true) => SyncState::ReadLocked,
            (_, false, false) => SyncState::Unlocked,
        };
        let plain = Content::plain(bytes, Some(8), state, Detail::Futex { value: word as u32 });
        Content { has_waiters: word & WAITED_FOR != 0, ..plain }
    }

    /// By the ends of names: a version is in front of them. A program that contains Abseil has them demangled.
    fn function(&self, name: &str) -> Option<Function> {
        if let Some((_, method)) = name.strip_prefix("absl::").and_then(|name| name.split_once("Mutex::")) {
            return match method.split('(').next()? {
                "Lock" | "TryLock" | "ReaderLock" | "ReaderTryLock" => Some(Function::Lock(Effect::Take)),
                "Unlock" | "ReaderUnlock" => Some(Function::Lock(Effect::Release)),
                _ => None,
            };
        }
        const TAKE: [&str; 4] =
            ["5Mutex4LockEv", "5Mutex7TryLockEv", "5Mutex10ReaderLockEv", "5Mutex13ReaderTryLockEv"];
        const RELEASE: [&str; 2] = ["5Mutex6UnlockEv", "5Mutex12ReaderUnlockEv"];
        let method = |ends: &[&str]| name.starts_with("_ZN4absl") && ends.iter().any(|end| name.ends_with(end));
        match () {
            () if method(&TAKE) => Some(Function::Lock(Effect::Take)),
            () if method(&RELEASE) => Some(Function::Lock(Effect::Release)),
            () => None,
        }
    }

    fn lock_word(&self, _: SyncKind, _: Family) -> LockWord {
        LockWord { sizes: &[8], is_called: true, may_be_inside: true, ..LockWord::default() }
    }
}

/// What of this kind a thread waits for: a word on its stack leads to a ring in which the thread is.
fn lock_of(seen: &SeenWait<'_>, kind: SyncKind, context: &Context<'_>) -> Option<RemoteAddr> {
    let maps = context.target.maps();
    // What Abseil keeps on the stack while the thread waits leads to the ring as well.
    let is_own = |word: u64| word.wrapping_sub(seen.sp.0) < 8 * seen.words.len() as u64;
    let may_be = |word: &&u64| {
        let is_data = || map_at(maps, RemoteAddr(**word)).is_some_and(|map| map.write);
        word.is_multiple_of(8) && is_data() && !(kind == SyncKind::Cond && is_own(**word))
    };
    let mut places = seen.words.iter().filter(may_be).take(MAX_WORDS).map(|word| RemoteAddr(*word));
    places.find(|at| waited_in(context.target, *at, seen.futex.word) == Some(kind))
}

/// The kind of the object at `address`, if a thread that sleeps on `futex` is in its ring of waiters.
fn waited_in(memory: &dyn Memory, address: RemoteAddr, futex: RemoteAddr) -> Option<SyncKind> {
    let word = memory.read_u64(address).ok()?;
    let first = word & !FLAGS;
    let kind = match word & FLAGS {
        flags if flags & WAITED_FOR != 0 => SyncKind::Mutex,
        flags if flags < WAITED_FOR => SyncKind::Cond,
        _ => return None,
    };
    let is_own = |identity: u64| futex.0.wrapping_sub(identity) < IDENTITY * REACH;
    if is_own(address.0) {
        return None;
    }
    let mut at = first;
    for _ in 0..MAX_RING {
        if at == 0 || !at.is_multiple_of(IDENTITY) {
            return None;
        }
        if is_own(at) {
            return Some(kind);
        }
        at = memory.read_u64(RemoteAddr(at)).ok()?;
        if at == first {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn a_thread_waits_for_the_lock_whose_ring_it_is_in() {
        let mut bytes = vec![0; 0x2000];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        // A mutex, a condition variable, a word of something else, and a ring of two.
        put(0x10, 0x11100 | WRITER | WAITED_FOR);
        put(0x18, 0x11100);
        put(0x20, 0x11100 | 0x20);
        put(0x28, 0x11900 | WAITED_FOR);
        put(0x1100, 0x11500);
        put(0x1500, 0x11100);
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(0x10000), bytes);
        let kind = |at: u64, futex: u64| waited_in(&memory, RemoteAddr(at), RemoteAddr(futex));
        assert_eq!(kind(0x10010, 0x11540), Some(SyncKind::Mutex), "the second");
        assert_eq!(kind(0x10018, 0x11140), Some(SyncKind::Cond));
        assert_eq!(kind(0x10020, 0x11140), None, "no lock");
        assert_eq!(kind(0x10010, 0x11a40), None, "not in the ring");
        assert_eq!(kind(0x10028, 0x11140), None, "a ring that ends");
    }
}
