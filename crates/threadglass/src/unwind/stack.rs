//! Words of a stack, read in few large pieces.

use crate::RemoteAddr;
use crate::memory::{Memory, u64_at};

/// The first piece. Most stacks of blocked threads are shorter.
const FIRST: usize = 4 << 10;
/// Any other.
const PIECE: usize = 32 << 10;
/// Pieces for one walk, so that a hostile stack costs a bounded amount of memory.
const MAX_PIECES: usize = 256;

/// The stack of one thread.
pub(crate) struct StackWords<'a> {
    /// Where more can be had; `None` for a copy made while the thread was stopped.
    memory: Option<&'a dyn Memory>,
    /// First address and bytes of each piece; the one used last is at the end.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl<'a> StackWords<'a> {
    /// Reads what is above the stack pointer at once, and more when asked.
    pub(crate) fn live(memory: &'a dyn Memory, sp: RemoteAddr) -> Self {
        let mut stack = Self { memory: Some(memory), pieces: Vec::new() };
        stack.word(sp.0);
        stack
    }

    /// What was read at `start` already, and more when asked.
    pub(crate) fn begun(memory: &'a dyn Memory, start: RemoteAddr, bytes: Vec<u8>) -> Self {
        Self { memory: Some(memory), pieces: vec![(start.0, bytes)] }
    }

    /// The copy `bytes` of what was at `start`, and nothing else.
    pub(crate) fn copied(start: RemoteAddr, bytes: Vec<u8>) -> Self {
        Self { memory: None, pieces: vec![(start.0, bytes)] }
    }

    /// The word at `addr`; `None` when it cannot be read.
    pub(crate) fn word(&mut self, addr: u64) -> Option<u64> {
        if let Some(word) = self.pieces.iter().rev().find_map(|piece| word_in(piece, addr)) {
            return Some(word);
        }
        let memory = self.memory.filter(|_| self.pieces.len() < MAX_PIECES)?;
        let bytes = memory.read_up_to(RemoteAddr(addr), if self.pieces.is_empty() { FIRST } else { PIECE }).ok()?;
        self.pieces.push((addr, bytes));
        word_in(self.pieces.last()?, addr)
    }
}

/// The word at `addr` of the bytes from `start` on.
pub(crate) fn word_in((start, bytes): &(u64, Vec<u8>), addr: u64) -> Option<u64> {
    u64_at(bytes, usize::try_from(addr.checked_sub(*start)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn a_stack_that_ends_early_has_no_words_behind_its_end() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), (0..=255).collect());
        let mut stack = StackWords::live(&target, RemoteAddr(0x1000));
        assert_eq!(stack.word(0x1000), Some(0x0706_0504_0302_0100));
        assert_eq!(stack.word(0x10f8), Some(0xfffe_fdfc_fbfa_f9f8));
        assert_eq!(stack.word(0x10f9), None);
        assert_eq!(stack.word(0x2000), None);
        assert_eq!(stack.word(u64::MAX), None);
        let mut copy = StackWords::copied(RemoteAddr(u64::MAX - 7), vec![1; 8]);
        assert!(copy.word(u64::MAX - 7).is_some() && copy.word(u64::MAX - 6).is_none());
    }
}
