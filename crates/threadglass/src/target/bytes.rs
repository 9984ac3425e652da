//! A target made of plain bytes, for tests and fuzzing.

use super::Symbols;
use crate::RemoteAddr;
use crate::memory::{Memory, ReadError, ReadErrorKind};
use std::collections::BTreeMap;

/// Memory that is a set of byte ranges, and a list of symbols.
///
/// ```
/// use threadglass::{RemoteAddr, memory::Memory, target::Bytes};
///
/// let mut target = Bytes::default();
/// target.map(RemoteAddr(0x1000), vec![1, 0, 0, 0, 9]);
/// assert_eq!(target.read_u32(RemoteAddr(0x1000)), Ok(1));
/// assert!(target.read_u32(RemoteAddr(0x1002)).is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    ranges: BTreeMap<u64, Vec<u8>>,
    symbols: BTreeMap<String, RemoteAddr>,
}

impl Bytes {
    /// Puts `bytes` at `addr`. Ranges should not overlap; of those that do, the one that starts
    /// last answers.
    pub fn map(&mut self, addr: RemoteAddr, bytes: Vec<u8>) {
        self.ranges.insert(addr.0, bytes);
    }

    /// Names an address.
    pub fn name(&mut self, symbol: &str, addr: RemoteAddr) {
        self.symbols.insert(symbol.to_owned(), addr);
    }

    /// The bytes mapped from exactly `addr` on, to change them.
    pub fn range_mut(&mut self, addr: RemoteAddr) -> Option<&mut Vec<u8>> {
        self.ranges.get_mut(&addr.0)
    }
}

impl Memory for Bytes {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let fault = ReadError { addr, len: buf.len(), kind: ReadErrorKind::Unmapped };
        let (start, bytes) = self.ranges.range(..=addr.0).next_back().ok_or(fault)?;
        let skip = usize::try_from(addr.0 - start).map_err(|_| fault)?;
        let there = bytes.get(skip..).filter(|there| !there.is_empty()).ok_or(fault)?;
        let n = there.len().min(buf.len());
        buf[..n].copy_from_slice(&there[..n]);
        Ok(n)
    }
}

impl Symbols for Bytes {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.symbols.get(name).copied()
    }
}
