//! The log of threads that `fixtures/log.h` writes.

use crate::{Value, address, holds_within};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const ENTRY: usize = 32;

/// Thread ids come back after a while (the kernel hands them out in a circle, to the whole machine),
/// so an entry further back than this is of another life. Threads that come and go live a small part
/// of this long.
const RECENT: u64 = 4_000;

/// The first threads of a fixture stay until its end.
const LASTING: u64 = 12;

/// One thread that lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub index: u64,
    /// Its `pthread_t`.
    pub id: u64,
    /// Its start function.
    pub start: u64,
}

/// Everything that was entered so far.
#[derive(Debug)]
pub struct Log {
    file: File,
    by_tid: HashMap<u64, Vec<Entry>>,
    next: u64,
}

impl Log {
    /// Opens the log of a fixture that runs.
    pub fn open(path: &Path) -> Self {
        let file = File::open(path).expect("the fixture has made its log");
        Self { file, by_tid: HashMap::new(), next: 0 }
    }

    /// How many threads have been entered by now. Taken before a look, it bounds which lives of a
    /// thread id that look can have seen.
    pub fn mark(&mut self) -> u64 {
        let mut block = vec![0; ENTRY * 4096];
        loop {
            // The entries follow a header of the same size.
            let got = self.file.read_at(&mut block, (self.next + 1) * ENTRY as u64).expect("the log can be read");
            for entry in block[..got].chunks_exact(ENTRY) {
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| entry[at * 8 + i]));
                if word(3) != 1 {
                    return self.next;
                }
                let entry = Entry { index: self.next, id: word(0), start: word(2) };
                self.by_tid.entry(word(1)).or_default().push(entry);
                self.next += 1;
            }
            if got < block.len() {
                return self.next;
            }
        }
    }

    /// The entry of a thread that a look after `mark` reported with this id, LWP and start function
    /// (0 for none). A thread may be seen before it has entered itself, and may get no CPU for a while;
    /// but it always does in the end, so only one that never lived stays missing.
    pub fn find(&mut self, id: &Value, lwp: &Value, start: u64, mark: u64) -> Option<Entry> {
        let (id, tid) = (address(id), lwp.as_u64()?);
        let mut found = None;
        holds_within(Duration::from_secs(60), || {
            let in_time = |entry: &&Entry| entry.index < LASTING || entry.index + RECENT > mark;
            let lives = self.by_tid.get(&tid).map(Vec::as_slice).unwrap_or_default();
            found = lives.iter().filter(in_time).find(|entry| entry.id == id && entry.start == start).copied();
            if found.is_none() {
                self.mark();
            }
            found.is_some()
        });
        found
    }
}
