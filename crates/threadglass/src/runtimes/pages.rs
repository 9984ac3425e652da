//! Reading long chains of small structures: those that follow each other in a chain lie side by side more often than not, so
//! that a page is read once for many of them.

use crate::RemoteAddr;
use crate::by_number::ByAddress;
use crate::memory::{Memory, PAGE, Slot};

/// Pages that were read. What is in them is as it was then.
pub(super) struct Pages {
    /// Bytes of one structure: it may begin in one page and end in the next one.
    size: usize,
    known: ByAddress<Vec<u8>>,
    /// Where a chain goes on that goes from page to page upwards, and how many pages of it are read at once by now.
    next: u64,
    ahead: usize,
}

impl Pages {
    /// With so many to be read at one time, not even a page is saved.
    pub(super) const MANY: usize = 64;
    /// Pages that are kept.
    const MOST: usize = 512;
    /// Pages that are read at once, at most.
    const AHEAD: usize = 16;

    pub(super) fn new(size: usize) -> Self {
        Self { size, known: ByAddress::default(), next: 0, ahead: 1 }
    }

    /// Reads the pages of `addresses` that are not known.
    pub(super) fn read(&mut self, memory: &dyn Memory, addresses: impl Iterator<Item = u64>) {
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let mut wanted: Vec<u64> = addresses.map(page).filter(|page| !self.known.contains_key(page)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if let [one] = wanted.as_slice() {
            return self.read_on(memory, *one);
        }
        let mut bytes: Vec<Vec<u8>> = wanted.iter().map(|_| vec![0; PAGE + self.size]).collect();
        let mut slots: Vec<Slot<'_>> =
            wanted.iter().zip(&mut bytes).map(|(page, bytes)| Slot::new(RemoteAddr(*page), bytes)).collect();
        memory.read_many(&mut slots);
        let lengths: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
        for ((page, mut bytes), length) in wanted.into_iter().zip(bytes).zip(lengths) {
            bytes.truncate(length);
            self.known.insert(page, bytes);
        }
    }

    /// Reads one page, and some behind it where the one before it was wanted last.
    fn read_on(&mut self, memory: &dyn Memory, first: u64) {
        self.ahead = if first == self.next { (self.ahead * 2).min(Self::AHEAD) } else { 1 };
        let bytes = memory.read_up_to(RemoteAddr(first), self.ahead * PAGE + self.size).unwrap_or_default();
        self.known.insert(first, bytes[..bytes.len().min(PAGE + self.size)].to_vec());
        for number in 1..self.ahead {
            // What could not be read as a whole is read anew when it is wanted.
            let from = number * PAGE;
            let Some(bytes) = bytes.get(from..from + PAGE + self.size) else { break };
            self.known.insert(first.wrapping_add(from as u64), bytes.to_vec());
        }
        self.next = first.wrapping_add((self.ahead * PAGE) as u64);
    }

    /// What was read at `address`: the structure there, or less where not all of it can be read.
    pub(super) fn bytes(&self, address: u64) -> &[u8] {
        let from = (address % PAGE as u64) as usize;
        let rest = self.known.get(&page(address)).and_then(|bytes| bytes.get(from..)).unwrap_or_default();
        &rest[..rest.len().min(self.size)]
    }
}

fn page(address: u64) -> u64 {
    address / PAGE as u64 * PAGE as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn pages_that_follow_each_other_are_read_together() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), (0..0x9000_u32).map(|at| (at / 0x1000) as u8).collect());
        let mut pages = Pages::new(16);
        for page in 1..=9_u64 {
            let address = page * 0x1000 + 8;
            pages.read(&target, std::iter::once(address));
            assert_eq!(pages.bytes(address), [page as u8 - 1; 16]);
        }
        // The last one has no page behind it.
        assert_eq!(pages.bytes(0x9ffc), [8; 4]);
        assert!(pages.known.contains_key(&0x9000) && !pages.known.contains_key(&0xa000));
        pages.read(&target, std::iter::once(0xa000));
        assert_eq!(pages.bytes(0xa000), [0; 0]);
    }

    #[test]
    fn a_page_is_read_once() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), (0..0x1100_u32).map(|at| (at % 251) as u8).collect());
        let mut pages = Pages::new(16);
        pages.read(&target, [0x1008, 0x1ff8, 0x5000].into_iter());
        let expected = |from: u32| (from..from + 16).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        assert_eq!(pages.bytes(0x1008), expected(8));
        assert_eq!(pages.bytes(0x1ff8), expected(0xff8), "it ends in the next page");
        assert_eq!(pages.bytes(0x5000), [0; 0]);
        assert_eq!(pages.bytes(0x2008), [0; 0], "that page was not read");
        pages.read(&Bytes::default(), [0x1010, 0x20f8].into_iter());
        assert_eq!(pages.bytes(0x1010), expected(16), "it is as it was");
        pages.read(&target, [0x2ff0].into_iter());
        assert_eq!(pages.bytes(0x20f8), [0; 0], "what could not be read is not read again");
    }
}
