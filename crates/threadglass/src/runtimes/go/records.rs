//! Reading very many small structures: those that lie side by side are read as one.

use crate::RemoteAddr;
use crate::memory::{Memory, Slot};

/// Bytes of memory that are read at one time.
const BATCH: usize = 1 << 20;
/// Structures with no more than this between them are read as one.
const NEAR: u64 = 512;
/// The longest range that is read as one.
const LONGEST: u64 = 64 << 10;

/// Reads `size` bytes at each of `addresses`, which are sorted. `visit` gets the index of each that can be read.
pub(super) fn read(memory: &dyn Memory, size: usize, addresses: &[u64], mut visit: impl FnMut(usize, &[u8])) {
    // No range is longer than all together, nor than the longest.
    let mut buffer = vec![0; BATCH.min(addresses.len().saturating_mul(size + NEAR as usize))];
    let mut runs = runs(addresses, size as u64).peekable();
    let mut done = 0;
    while runs.peek().is_some() {
        let (mut batch, mut left, mut slots) = (Vec::new(), buffer.as_mut_slice(), Vec::new());
        while let Some((members, length)) = runs.next_if(|(_, length)| *length <= left.len()) {
            let (bytes, rest) = left.split_at_mut(length);
            left = rest;
            slots.push(Slot::new(RemoteAddr(members[0]), bytes));
            batch.push(members);
        }
        memory.read_many(&mut slots);
        for (members, slot) in batch.into_iter().zip(&slots) {
            let bytes = &slot.buf[..slot.outcome.unwrap_or(0)];
            for (number, address) in members.iter().enumerate() {
                let from = (address - slot.addr.0) as usize;
                if let Some(bytes) = bytes.get(from..from + size) {
                    visit(done + number, bytes);
                }
            }
            done += members.len();
        }
    }
}

/// Addresses that are read as one range, with its length.
fn runs(addresses: &[u64], size: u64) -> impl Iterator<Item = (&[u64], usize)> {
    let mut rest = addresses;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let belongs = |(before, next): (&u64, &u64)| {
            next.checked_sub(*before).is_some_and(|gap| gap <= size + NEAR)
                && next.checked_sub(first).is_some_and(|far| far < LONGEST - size)
        };
        let count = 1 + rest.iter().zip(&rest[1..]).take_while(|pair| belongs(*pair)).count();
        let (run, after) = rest.split_at(count);
        rest = after;
        Some((run, (run[count - 1] - first + size) as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn neighbours_are_read_together() {
        let addresses = [0x1000, 0x11c0, 0x1380, 0x9000, 0x9001, u64::MAX - 8, u64::MAX];
        let found: Vec<_> = runs(&addresses, 448).map(|(run, length)| (run.len(), length)).collect();
        assert_eq!(found, [(3, 0x380 + 448), (2, 449), (2, 456)]);
        assert_eq!(runs(&[], 448).count(), 0);
    }

    #[test]
    fn each_gets_its_own_bytes_and_those_that_cannot_be_read_none() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), (0..=255).collect());
        target.map(RemoteAddr(0x9000), vec![7; 16]);
        let mut seen = Vec::new();
        read(&target, 4, &[0x1000, 0x1010, 0x10fe, 0x5000, 0x9004], |index, bytes| seen.push((index, bytes.to_vec())));
        let expected = [(0, vec![0, 1, 2, 3]), (1, vec![16, 17, 18, 19]), (4, vec![7; 4])];
        assert_eq!(seen, expected);
        read(&target, 4, &[], |_, _| panic!("nothing to read"));
    }
}
