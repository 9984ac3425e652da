//! The entries of an unwind table: the bytes of one function's, and of the common part it refers to.
//!
//! A table may be far larger than the few entries that a stack needs, and its size is only a claim. So single entries
//! are read, each up to a maximum length.

use super::cfi::{Bytes, TableInput};
use crate::RemoteAddr;
use crate::limits::{Limits, NO_TIME, Share};
use crate::memory::{Memory, u32_at};
use gimli::{BaseAddresses, CieOrFde, EhFrame, FrameDescriptionEntry, LittleEndian, UnwindSection};

/// Bytes of one entry. The longest seen have a few thousand.
const MAX_ENTRY: usize = 64 << 10;
/// Bytes that are read for an entry at first: most have fewer.
const FIRST: usize = 128;

/// Why a table, or an entry of it, is left out although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("one of its entries is too long")]
    TooLong,
    #[error("it has no index, and is too large to be searched without")]
    Unindexed,
    #[error("the look has already read the tables of too many files")]
    TooMany,
    #[error("{NO_TIME}")]
    Time,
}

/// A part of the target's memory, or of a file, that holds a table.
pub(super) struct TableSection {
    pub(super) start: u64,
    pub(super) len: u64,
    /// A copy of it, if there is one.
    copy: Option<(Vec<u8>, Share)>,
}

impl TableSection {
    /// `len` bytes at `start`, copied if they are not more than `most` and there is room.
    pub(super) fn new(input: TableInput<'_>, start: u64, len: u64, most: u64) -> Self {
        let len = len.min(u64::MAX - start);
        Self::copied(input, start, len, most).unwrap_or(Self { start, len, copy: None })
    }

    /// A copy of what can be read of `len` bytes at `start`; `None` if these are more than `most`, or there is no room.
    pub(super) fn copied(input: TableInput<'_>, start: u64, len: u64, most: u64) -> Option<Self> {
        let TableInput { memory, limits } = input;
        let share = Some(len).filter(|len| *len <= most).and_then(|len| Limits::share(limits, len))?;
        // A segment may reach beyond its file.
        let bytes = memory.read_up_to(RemoteAddr(start), usize::try_from(len).ok()?).unwrap_or_default();
        Some(Self::of_bytes(start, bytes, share))
    }

    /// Bytes of ours that stand for those at `start`.
    pub(super) fn of_bytes(start: u64, bytes: Vec<u8>, share: Share) -> Self {
        let len = (bytes.len() as u64).min(u64::MAX - start);
        Self { start, len, copy: Some((bytes, share)) }
    }

    /// Reads at `addr`, as far as the section goes; how many bytes there are.
    pub(super) fn read(&self, memory: &dyn Memory, addr: u64, buf: &mut [u8]) -> usize {
        let Some(at) = addr.checked_sub(self.start).filter(|at| *at < self.len) else { return 0 };
        let there = usize::try_from(self.len - at).unwrap_or(usize::MAX).min(buf.len());
        match &self.copy {
            Some((bytes, _)) => {
                buf[..there].copy_from_slice(&bytes[at as usize..at as usize + there]);
                there
            }
            None => memory.read_at(RemoteAddr(addr), &mut buf[..there]).unwrap_or(0),
        }
    }

    /// Where the entries of a copied section are, one behind the other, up to the first that cannot be one.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        let bytes = self.copy.as_ref().map_or(&[][..], |(bytes, _)| bytes);
        let mut at = 0_usize;
        std::iter::from_fn(move || {
            let here = at;
            let length = length_of(bytes.get(at..)?)?;
            at = at.checked_add(length)?;
            Some(self.start + here as u64)
        })
    }
}

/// Bytes of the entry at the beginning of `bytes`; `None` when it is the end of a table. The form for entries of more
/// than 4 GiB is no entry here.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = u32_at(bytes, 0)?;
    (4..0xffff_fff0).contains(&length).then_some(length as usize + 4)
}

/// The bytes of one function's entry, behind those of the common part that it refers to.
pub(super) struct UnwindEntry {
    bytes: Vec<u8>,
    /// Where the function's own part begins in `bytes`, and where that is in the target.
    own: usize,
    at: u64,
}

impl UnwindEntry {
    /// Reads the entry at `at`; `None` when there is no function's.
    pub(super) fn read(section: &TableSection, memory: &dyn Memory, at: u64) -> Result<Option<Self>, Fault> {
        let Some(own) = record(section, memory, at)? else { return Ok(None) };
        // How far the common part is back from this very number.
        let back = u32::from_le_bytes([own[4], own[5], own[6], own[7]]);
        let common = (at + 4).checked_sub(back.into()).filter(|_| back != 0);
        let Some(common) = common.map_or(Ok(None), |common| record(section, memory, common))? else { return Ok(None) };
        let mut bytes = common;
        let begin = bytes.len();
        bytes.extend(own);
        // The two are neighbours now.
        bytes[begin + 4..begin + 8].copy_from_slice(&(begin as u32 + 4).to_le_bytes());
        Ok(Some(Self { bytes, own: begin, at }))
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// First address of the function.
    pub(super) fn function(&self) -> Option<u64> {
        self.with(|_, _, entry| entry.initial_address())
    }

    /// Gives the decoded entry to `take`, with the section that its parts are in and the addresses of that. `None`
    /// when it is corrupt.
    pub(super) fn with<T>(
        &self,
        take: impl FnOnce(&EhFrame<Bytes<'_>>, &BaseAddresses, &FrameDescriptionEntry<Bytes<'_>>) -> T,
    ) -> Option<T> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        // Addresses are counted from where they stand: for the function's own part they are right.
        let bases = BaseAddresses::default().set_eh_frame(self.at.wrapping_sub(self.own as u64));
        let mut entries = section.entries(&bases);
        // The common part is the first.
        let Ok(Some(CieOrFde::Cie(_))) = entries.next() else { return None };
        let Ok(Some(CieOrFde::Fde(partial))) = entries.next() else { return None };
        let entry = partial.parse(EhFrame::cie_from_offset).ok()?;
        Some(take(&section, &bases, &entry))
    }
}

/// The bytes of one part of an entry, its length first; `None` where there is none.
fn record(section: &TableSection, memory: &dyn Memory, at: u64) -> Result<Option<Vec<u8>>, Fault> {
    let mut bytes = vec![0; FIRST];
    let got = section.read(memory, at, &mut bytes);
    let Some(length) = length_of(&bytes[..got]).filter(|length| *length >= 8) else { return Ok(None) };
    if length > MAX_ENTRY {
        return Err(Fault::TooLong);
    }
    bytes.resize(length, 0);
    let more = bytes.get_mut(got..).map_or(0, |rest| section.read(memory, at + got as u64, rest));
    Ok((got + more >= length).then_some(bytes))
}
