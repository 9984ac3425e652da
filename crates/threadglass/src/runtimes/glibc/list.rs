//! Walking glibc's circular lists of threads, in a process that does not stand still.

use super::descriptor::{Descriptor, DescriptorReader};
use crate::RemoteAddr;
use crate::memory::Memory;
use std::collections::{HashMap, HashSet};

/// More nodes than any process has threads: each takes two mappings. A list that is longer lies.
pub const MAX_NODES: usize = 1 << 17;

/// Why a walk could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListFault {
    /// A link leads to memory that cannot be read.
    #[error("libc's list of threads leads to {0}, which cannot be read")]
    Unreadable(RemoteAddr),
    /// A node comes twice.
    #[error("libc's list of threads loops at {0}")]
    Loops(RemoteAddr),
    /// A node does not lead back to where we came from: the list was changing, or is corrupt.
    #[error("libc's list of threads changed at {0} during the look")]
    Changed(RemoteAddr),
    /// More nodes than any process has threads.
    #[error("libc's list of threads has more than {MAX_NODES} entries")]
    Endless,
}

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub struct ListWalk {
    /// The threads on the lists, in list order.
    pub threads: Vec<Descriptor>,
    /// Why the walk ended early, if it did.
    pub broken: Option<ListFault>,
}

/// Walks every list that one of `starts` (a list head, or any node) belongs to.
///
/// Nodes in `known` are not read again, so that a walk costs a system call only for the threads
/// that were not found in another way (which is how ended threads are found at all).
pub fn walk(
    memory: &dyn Memory,
    reader: &DescriptorReader<'_>,
    starts: &[RemoteAddr],
    known: &HashMap<RemoteAddr, Descriptor>,
) -> ListWalk {
    let mut found = ListWalk::default();
    let mut seen = HashSet::new();
    for start in starts {
        if !seen.contains(start)
            && let Err(reason) = walk_ring(memory, reader, *start, known, &mut seen, &mut found.threads)
        {
            found.broken.get_or_insert(reason);
        }
    }
    found
}

fn walk_ring(
    memory: &dyn Memory,
    reader: &DescriptorReader<'_>,
    start: RemoteAddr,
    known: &HashMap<RemoteAddr, Descriptor>,
    seen: &mut HashSet<RemoteAddr>,
    threads: &mut Vec<Descriptor>,
) -> Result<(), ListFault> {
    let offset = reader.layout().list;
    let mut node = start;
    let mut previous: Option<RemoteAddr> = None;
    loop {
        if !seen.insert(node) {
            return Err(ListFault::Loops(node));
        }
        if seen.len() > MAX_NODES {
            return Err(ListFault::Endless);
        }
        let read = |base| known.get(&base).map_or_else(|| reader.read(memory, base), |thread| Ok(Some(thread.clone())));
        let thread = match node.checked_sub(offset).map(read) {
            None => None,
            // A head is no thread, and there may be nothing where one around it would begin.
            Some(Err(_)) if node == start => None,
            Some(thread) => thread.map_err(|_| ListFault::Unreadable(node))?,
        };
        let (next, prev) = match &thread {
            Some(thread) => (thread.next, thread.prev),
            // A list head, or a thread so new that its descriptor does not point to itself yet.
            None => {
                let link = |at: u64| memory.read_addr(node.offset(at)).map_err(|_| ListFault::Unreadable(node));
                (link(0)?, link(8)?)
            }
        };
        if next.is_null() && previous.is_none() {
            return Ok(()); // the program has not set up its lists yet
        }
        if previous.is_some_and(|previous| previous != prev) {
            return Err(ListFault::Changed(node));
        }
        threads.extend(thread);
        if next == start {
            return Ok(());
        }
        previous = Some(node);
        node = next;
    }
}
