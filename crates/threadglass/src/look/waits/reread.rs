//! One object again, after a look at all of them: for interfaces that ask for one at a time.

use super::look::{idle, object};
use super::owners::Owners;
use super::survey::read_objects;
use crate::memory::Memory;
use crate::model::{SyncKind, SyncObject, Thread};
use crate::runtimes::glibc::Layout;
use crate::runtimes::{self, Class, Context, LibcLayout, Owner, held_by_content};
use crate::target::Target;
use crate::{InnerTid, RemoteAddr};

/// What an object says now.
#[derive(Clone, Debug)]
pub struct Reread {
    /// The object, with the waiters it had before.
    pub object: SyncObject,
    /// Whether it believes to have waiters. May be out of date in either direction.
    pub marked: bool,
    /// Whether an object of its kind can have these bytes. If not, it has no state and no holders.
    pub is_plausible: bool,
    /// The bytes.
    pub raw: Vec<u8>,
}

/// The object that was `seen`, read anew; `None` when it cannot be read. `threads` are those of the target.
pub fn reread(target: &dyn Target, layout: Option<&Layout>, threads: &[Thread], seen: &SyncObject) -> Option<Reread> {
    let class = idle(seen.kind, seen.family, seen.address, seen.evidence);
    let needs_threads = runtimes::of(seen.family).names_descriptor(seen.kind, seen.family);
    let context = Context::new(target, layout.map(LibcLayout::Glibc), if needs_threads { threads } else { &[] });
    let content = read_objects(&context, &[class]).pop().flatten()?;
    let is_owner = |thread: &&Thread| match content.owner {
        Owner::None | Owner::Ended => false,
        Owner::Tid(inner) => thread.inner_lwp == Some(inner),
        Owner::Thread(id) => thread.id.is_some_and(|other| other.0 == id),
    };
    let owners: Vec<Thread> = threads.iter().filter(is_owner).cloned().collect();
    let mut now = object(target, &class, Some(&content), &Owners::new(target, &owners));
    (now.name, now.waiters) = (seen.name.clone(), seen.waiters.clone());
    Some(Reread { object: now, marked: content.has_waiters, is_plausible: content.is_plausible, raw: content.raw })
}

/// The kind of a pthread object at `address`, where its bytes alone say so: one that is held, and names its
/// holder, whom `is_thread` must know. An idle object says nothing of itself.
pub fn by_content(memory: &dyn Memory, address: RemoteAddr, is_thread: &dyn Fn(InnerTid) -> bool) -> Option<SyncKind> {
    held_at(memory, address, is_thread).map(|class| class.kind)
}

/// What is at `address`, as [`by_content`] tells it.
pub(super) fn held_at(memory: &dyn Memory, address: RemoteAddr, is_thread: &dyn Fn(InnerTid) -> bool) -> Option<Class> {
    /// As many as the largest of them has.
    const MOST: usize = 56;
    let mut bytes = [0; MOST];
    let got = memory.read_at(address, &mut bytes).ok()?.min(MOST);
    held_by_content(address, &bytes[..got], is_thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    fn at(words: &[u32]) -> Bytes {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(64, 0);
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(0x1000), bytes);
        memory
    }

    #[test]
    fn only_what_names_a_thread_that_lives() {
        let is_thread = |tid: InnerTid| tid.0 == 7;
        let kind = |words: &[u32]| by_content(&at(words), RemoteAddr(0x1000), &is_thread);
        assert_eq!(kind(&[1, 0, 7, 1, 0]), Some(SyncKind::Mutex));
        assert_eq!(kind(&[1, 0, 8, 1, 0]), None, "nobody's");
        assert_eq!(kind(&[1, 0, 7, 0, 0]), None, "without a user");
        assert_eq!(kind(&[0; 14]), None, "idle");
        assert_eq!(kind(&[3, 0, 1, 1, 0, 0, 7]), Some(SyncKind::Rwlock));
        assert_eq!(kind(&[3, 0, 0, 1, 0, 0, 7]), None, "its phase is another");
        assert_eq!(by_content(&at(&[1]), RemoteAddr(0x5000), &is_thread), None, "not mapped");
    }
}
