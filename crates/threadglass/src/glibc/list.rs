//! Walking glibc's circular lists of threads, in a process that does not stand still.

use super::descriptor::{Descriptor, DescriptorReader};
use crate::RemoteAddr;
use crate::target::Memory;
use std::collections::{HashMap, HashSet};

/// More nodes than any process has threads; a list that is longer lies.
pub const MAX_NODES: usize = 1 << 20;

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub struct ListWalk {
    /// The threads on the lists, in list order.
    pub threads: Vec<Descriptor>,
    /// Why the walk ended early, if it did: the list was changing, or is corrupt.
    pub broken: Option<String>,
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
        if seen.contains(start) {
            continue;
        }
        if let Err(reason) = walk_ring(memory, reader, *start, known, &mut seen, &mut found.threads) {
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
) -> Result<(), String> {
    let offset = reader.layout().list;
    let mut node = start;
    let mut previous: Option<RemoteAddr> = None;
    loop {
        if !seen.insert(node) {
            return Err(format!("the thread list loops at {node}"));
        }
        if seen.len() > MAX_NODES {
            return Err(format!("the thread list has more than {MAX_NODES} nodes"));
        }
        let base = node.checked_sub(offset);
        let thread = base.and_then(|base| known.get(&base).cloned().or_else(|| reader.read(memory, base)));
        let (next, prev) = match &thread {
            Some(thread) => (thread.next, thread.prev),
            // A list head, or a thread so new that its descriptor does not point to itself yet.
            None => {
                let link = |at: u64| {
                    memory
                        .read_addr(node.offset(at))
                        .map_err(|_| format!("the thread list leads to {node}, which is not mapped"))
                };
                (link(0)?, link(8)?)
            }
        };
        if next.is_null() && previous.is_none() {
            return Ok(()); // the program has not set up its lists yet
        }
        if previous.is_some_and(|previous| previous != prev) {
            return Err(format!("the thread list changed under us at {node}"));
        }
        threads.extend(thread);
        if next == start {
            return Ok(());
        }
        previous = Some(node);
        node = next;
    }
}
