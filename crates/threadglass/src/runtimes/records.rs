//! Reading very many small structures: those that lie side by side are read as one.

use crate::RemoteAddr;
use crate::memory::{Memory, Slot};
use std::ops::Range;

/// Bytes of memory that are read at one time.
const BATCH: usize = 1 << 20;
/// Structures with no more than this between them are read as one.
const NEAR: u64 = 512;
/// The longest range that is read as one.
const LONGEST: u64 = 64 << 10;

/// Reads at each of `addresses`, which are sorted, as many bytes as `size` says for its index. `visit` gets the index of each that
/// can be read.
pub(super) fn read(
    memory: &dyn Memory,
    addresses: &[u64],
    size: impl Fn(usize) -> usize,
    mut visit: impl FnMut(usize, &[u8]),
) {
    // No range is longer than all together, nor than the longest.
    let all = (0..addresses.len()).fold(0_usize, |all, index| all.saturating_add(size(index) + NEAR as usize));
    let mut buffer = vec![0; all.min(BATCH)];
    let mut runs = runs(addresses, &size).peekable();
    while runs.peek().is_some() {
        let (mut batch, mut left, mut slots) = (Vec::new(), buffer.as_mut_slice(), Vec::new());
        while let Some((members, length)) = runs.next_if(|(_, length)| *length <= left.len()) {
            let (bytes, rest) = left.split_at_mut(length);
            left = rest;
            slots.push(Slot::new(RemoteAddr(addresses[members.start]), bytes));
            batch.push(members);
        }
        memory.read_many(&mut slots);
        for (members, slot) in batch.into_iter().zip(&slots) {
            let bytes = &slot.buf[..slot.outcome.unwrap_or(0)];
            for index in members {
                let from = (addresses[index] - slot.addr.0) as usize;
                if let Some(bytes) = bytes.get(from..from + size(index)) {
                    visit(index, bytes);
                }
            }
        }
    }
}

/// Addresses that are read as one range: their indexes, and its length.
fn runs(addresses: &[u64], size: &impl Fn(usize) -> usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        let first = *addresses.get(start)?;
        let mut length = size(start) as u64;
        next += 1;
        while let Some(far) = addresses.get(next).and_then(|address| address.checked_sub(first)) {
            let longer = far.saturating_add(size(next) as u64);
            if far > length + NEAR || longer > LONGEST {
                break;
            }
            length = length.max(longer);
            next += 1;
        }
        Some((start..next, length as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn neighbours_are_read_together() {
        let addresses = [0x1000, 0x11c0, 0x1380, 0x9000, 0x9001, u64::MAX - 8, u64::MAX];
        let found: Vec<_> = runs(&addresses, &|_| 448).map(|(run, length)| (run.len(), length)).collect();
        assert_eq!(found, [(3, 0x380 + 448), (2, 449), (2, 456)]);
        assert_eq!(runs(&[], &|_| 448).count(), 0);
    }

    #[test]
    fn each_gets_its_own_bytes_and_those_that_cannot_be_read_none() {
        let mut target = Bytes::default();
        target.map(RemoteAddr(0x1000), (0..=255).collect());
        target.map(RemoteAddr(0x9000), vec![7; 16]);
        let mut seen = Vec::new();
        read(
            &target,
            &[0x1000, 0x1010, 0x10fe, 0x5000, 0x9004],
            |_| 4,
            |index, bytes| seen.push((index, bytes.to_vec())),
        );
        let expected = [(0, vec![0, 1, 2, 3]), (1, vec![16, 17, 18, 19]), (4, vec![7; 4])];
        assert_eq!(seen, expected);
        read(&target, &[], |_| 4, |_, _| panic!("nothing to read"));
    }
}
