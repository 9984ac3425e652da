//! The target's memory as one look sees it: each page is read once.

use super::addresses::ByAddress;
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::unwind::word_in;

const PAGE: u64 = 4096;
/// Pages that one look reads, so that a hostile target costs a bounded amount of memory.
const MAX_PAGES: usize = 8192;

/// Pages of the target, and the stack of the thread that is looked at.
pub(super) struct Pages<'a> {
    memory: &'a dyn Memory,
    pages: ByAddress<Option<Box<[u8]>>>,
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
            let mut bytes = vec![0; PAGE as usize];
            let whole = self.memory.read_exact(RemoteAddr(number * PAGE), &mut bytes).is_ok();
            self.pages.insert(number, whole.then(|| bytes.into_boxed_slice()));
        }
        self.pages.get(&number)?.as_deref()
    }

    /// The word at an aligned address.
    pub(super) fn word(&mut self, aligned: u64) -> Option<u64> {
        word_in(&self.stack, aligned).or_else(|| {
            let at = (aligned % PAGE) as usize;
            let word = self.page(aligned / PAGE)?.get(at..at + 8)?;
            word.try_into().ok().map(u64::from_le_bytes)
        })
    }

    /// As many bytes of code from `addr` on as `buf` takes; how many there are.
    pub(super) fn code(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let Some(from) = addr.checked_add(done as u64) else { break };
            let at = (from % PAGE) as usize;
            let Some(page) = self.page(from / PAGE) else { break };
            let count = (buf.len() - done).min(page.len() - at);
            buf[done..done + count].copy_from_slice(&page[at..at + count]);
            done += count;
        }
        done
    }
}
