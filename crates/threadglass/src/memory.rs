//! Bytes of a target, by address.
//!
//! A short read is success: `Ok(n)` with `n < buf.len()` says that the bytes from `addr + n` on are
//! not available. Nothing here stops the process, so two reads may see two different moments;
//! callers that need agreement read again and compare.

use crate::RemoteAddr;

/// Why bytes could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadErrorKind {
    /// Nothing is mapped there (or it may not be read).
    #[error("not mapped")]
    Unmapped,
    /// We are not allowed to read this process.
    #[error("not permitted")]
    Denied,
    /// The process has gone, or executes another program now.
    #[error("the process has ended")]
    Gone,
}

/// A failed read, with the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {len} bytes at {addr}: {kind}")]
pub struct ReadError {
    /// Where.
    pub addr: RemoteAddr,
    /// How much was asked for.
    pub len: usize,
    /// Why not.
    pub kind: ReadErrorKind,
}

/// One range of a batched read.
#[derive(Debug)]
pub struct Slot<'a> {
    /// Where to read.
    pub addr: RemoteAddr,
    /// Where to put it.
    pub buf: &'a mut [u8],
    /// What came of it, as for [`Memory::read_at`].
    pub outcome: Result<usize, ReadError>,
}

impl<'a> Slot<'a> {
    /// A range still to be read.
    pub fn new(addr: RemoteAddr, buf: &'a mut [u8]) -> Self {
        Self { addr, buf, outcome: Ok(0) }
    }

    /// Whether all of it was read.
    pub fn is_whole(&self) -> bool {
        self.outcome == Ok(self.buf.len())
    }
}

/// Bytes of the inspected process, live or dead.
pub trait Memory {
    /// Reads at `addr`; a short read is success.
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError>;

    /// Reads many ranges. Targets that can do this in few calls override it.
    fn read_many(&self, slots: &mut [Slot<'_>]) {
        for slot in slots {
            slot.outcome = self.read_at(slot.addr, slot.buf);
        }
    }

    /// Reads all of `buf` or fails.
    fn read_exact(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let len = buf.len();
        match self.read_at(addr, buf)? {
            n if n == len => Ok(()),
            _ => Err(ReadError { addr, len, kind: ReadErrorKind::Unmapped }),
        }
    }

    /// What can be read of `len` bytes; short as by [`Self::read_at`].
    fn read_up_to(&self, addr: RemoteAddr, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; len];
        let got = self.read_at(addr, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Reads `len` bytes.
    fn read_vec(&self, addr: RemoteAddr, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; len];
        self.read_exact(addr, &mut bytes).map(|()| bytes)
    }

    /// Reads `N` bytes.
    fn read_array<const N: usize>(&self, addr: RemoteAddr) -> Result<[u8; N], ReadError>
    where
        Self: Sized,
    {
        let mut buf = [0; N];
        self.read_exact(addr, &mut buf).map(|()| buf)
    }

    /// Reads a 32-bit number.
    fn read_u32(&self, addr: RemoteAddr) -> Result<u32, ReadError> {
        let mut buf = [0; 4];
        self.read_exact(addr, &mut buf).map(|()| u32::from_le_bytes(buf))
    }

    /// Reads a 64-bit number.
    fn read_u64(&self, addr: RemoteAddr) -> Result<u64, ReadError> {
        let mut buf = [0; 8];
        self.read_exact(addr, &mut buf).map(|()| u64::from_le_bytes(buf))
    }

    /// Reads a pointer.
    fn read_addr(&self, addr: RemoteAddr) -> Result<RemoteAddr, ReadError> {
        self.read_u64(addr).map(RemoteAddr)
    }
}

/// A target whose memory can be changed. Apart from [`Memory`], so that nothing which only looks can
/// reach it.
pub trait MemoryWrite: Memory {
    /// Writes all of `bytes` at `addr`, or fails.
    fn write_at(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), ReadError>;
}

/// What can be read of each of `places`, an address and a number of bytes, in few calls.
pub(crate) fn read_each(memory: &dyn Memory, places: impl Iterator<Item = (RemoteAddr, usize)>) -> Vec<Vec<u8>> {
    let (addrs, mut bytes): (Vec<_>, Vec<_>) = places.map(|(addr, size)| (addr, vec![0; size])).unzip();
    let mut slots: Vec<_> = addrs.into_iter().zip(&mut bytes).map(|(addr, buf)| Slot::new(addr, buf)).collect();
    memory.read_many(&mut slots);
    let sizes: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
    for (bytes, size) in bytes.iter_mut().zip(sizes) {
        bytes.truncate(size);
    }
    bytes
}

/// `N` bytes at each of `addrs`, in few calls; `None` where not all of them can be read.
pub(crate) fn read_arrays<const N: usize>(memory: &dyn Memory, addrs: &[RemoteAddr]) -> Vec<Option<[u8; N]>> {
    let mut bytes = vec![[0; N]; addrs.len()];
    let mut slots: Vec<_> = addrs.iter().zip(&mut bytes).map(|(addr, buf)| Slot::new(*addr, &mut buf[..])).collect();
    memory.read_many(&mut slots);
    let whole: Vec<bool> = slots.iter().map(Slot::is_whole).collect();
    bytes.into_iter().zip(whole).map(|(bytes, whole)| whole.then_some(bytes)).collect()
}

/// The 32-bit number at `at` of `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// The 64-bit number at `at` of `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// Mappings that one read goes through, beside those that its size accounts for.
const MAX_PIECES: usize = 64;
/// Pages are never smaller.
pub(crate) const PAGE: usize = 4096;

/// Reads `buf` piece by piece, until `piece` reads no more at an address.
pub(crate) fn read_pieces(
    addr: RemoteAddr,
    buf: &mut [u8],
    mut piece: impl FnMut(u64, &mut [u8]) -> usize,
) -> Result<usize, ReadError> {
    let mut done = 0;
    // Mappings are whole pages: many bytes lie in few of them, unless they were cut up to take our time.
    let mut left = MAX_PIECES + buf.len() / PAGE * 2;
    while done < buf.len() && left > 0 {
        left -= 1;
        let Some(at) = addr.checked_add(done as u64) else { break };
        match piece(at.0, &mut buf[done..]) {
            0 => break,
            n => done += n,
        }
    }
    match done {
        0 if !buf.is_empty() => Err(ReadError { addr, len: buf.len(), kind: ReadErrorKind::Unmapped }),
        n => Ok(n),
    }
}
