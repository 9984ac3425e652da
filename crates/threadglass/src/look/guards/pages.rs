//! The target's memory as one look sees it: each page is read once.

use crate::RemoteAddr;
use crate::by_number::ByAddress;
use crate::memory::{Memory, PAGE, read_pieces, u64_at};
use crate::unwind::word_in;

/// Pages that one look reads, so that a hostile target costs a bounded amount of memory.
const MAX_PAGES: usize = 8192;

/// Pages of the target, and the stack of the thread that is looked at.
pub(super) struct Pages<'a> {
    memory: &'a dyn Memory,
    /// By number: what can be read of each from its beginning.
    pages: ByAddress<Vec<u8>>,
    /// First address and bytes of the stack at hand.
    stack: (u64, Vec<u8>),
}

impl<'a> Pages<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self { memory, pages: ByAddress::default(), stack: (0, Vec::new()) }
    }

    /// Takes `bytes`, read at `start`, for the stack from now on.
    pub(super) fn set_stack(&mut self, start: u64, bytes: Vec<u8>) {
        self.stack = (start, bytes);
    }

    fn page(&mut self, number: u64) -> Option<&[u8]> {
        if !self.pages.contains_key(&number) {
            if self.pages.len() >= MAX_PAGES {
                return None;
            }
            let mut bytes = vec![0; PAGE];
            let got = self.memory.read_at(RemoteAddr(number * PAGE as u64), &mut bytes).unwrap_or(0);
            bytes.truncate(got);
            self.pages.insert(number, bytes);
        }
        self.pages.get(&number).map(Vec::as_slice)
    }

    /// The word at an aligned address.
    pub(super) fn word(&mut self, aligned: u64) -> Option<u64> {
        word_in(&self.stack, aligned).or_else(|| {
            let (number, at) = place(aligned);
            u64_at(self.page(number)?, at)
        })
    }

    /// As many bytes of code from `addr` on as `buf` takes; how many there are.
    pub(super) fn code(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        let read = read_pieces(RemoteAddr(addr), buf, |from, rest| {
            let (number, at) = place(from);
            let Some(bytes) = self.page(number).and_then(|page| page.get(at..)) else { return 0 };
            let count = rest.len().min(bytes.len());
            rest[..count].copy_from_slice(&bytes[..count]);
            count
        });
        read.unwrap_or(0)
    }
}

/// The page that an address is in, and where in that.
fn place(addr: u64) -> (u64, usize) {
    (addr / PAGE as u64, (addr % PAGE as u64) as usize)
}
