//! Unwind tables (`.eh_frame`) of one object, as they lie in the target's memory.
//!
//! Compilers put the table and its index (`.eh_frame_hdr`) into loaded segments, because C++ and Rust
//! need them at run time. So they can be had without the file: of deleted and replaced libraries, and
//! in containers. All addresses here are run-time addresses.

use super::entries::{Fault, TableSection, UnwindEntry};
use crate::RemoteAddr;
use crate::elf::{Image, ObjectFile};
use crate::limits::{Limits, Share};
use crate::memory::{Memory, u32_at};
use gimli::{
    BaseAddresses, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection,
};
use std::fs::File;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Bytes of one table that are copied at once. Of a larger one each entry is read when it is needed.
const COPIED: u64 = 16 << 20;
/// Bytes of a table without an index that are searched for its entries, and how many of those are kept.
pub(super) const MAX_SEARCHED: u64 = 64 << 20;
pub(super) const MAX_FUNCTIONS: usize = 1 << 20;
/// Bytes of entries that such a search decodes: entries that share a large beginning multiply.
const MAX_DECODED: usize = 256 << 20;
/// Entries between two looks at the clock.
pub(super) const BATCH: usize = 256;
/// Bytes of an index before its pairs, in the form that all linkers write.
const INDEX_HEAD: u64 = 12;
/// Longest expression of a rule. Those of signal frames and realigned stacks have up to twenty bytes.
const MAX_EXPRESSION: usize = 128;

/// How the frame of a function is undone at one instruction.
#[derive(Clone, Debug)]
pub(crate) struct UnwindRow {
    /// First and one past the last address of the function (or of the part of one) that it covers.
    pub(crate) function: (u64, u64),
    /// Where the language's own data of the function is: its landing pads.
    pub(crate) lsda: Option<u64>,
    pub(super) cfa: Cfa,
    /// By DWARF number; a register that is not named is unchanged if functions preserve it.
    pub(super) rules: Vec<(u16, Rule)>,
    /// Whether this is a signal trampoline: its caller was interrupted, not calling.
    pub(super) signal: bool,
}

/// Where the caller's stack pointer was at the call.
#[derive(Clone, Debug)]
pub(crate) enum Cfa {
    Register(u16, i64),
    Expression(Vec<u8>),
}

/// Where a register of the caller is.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Undefined,
    Same,
    /// Saved at this distance from the CFA.
    At(i64),
    /// At this distance from the CFA itself.
    Is(i64),
    Register(u16),
    AtExpression(Vec<u8>),
    IsExpression(Vec<u8>),
}

impl UnwindRow {
    pub(super) fn rule(&self, register: u16) -> Option<&Rule> {
        self.rules.iter().find(|(number, _)| *number == register).map(|(_, rule)| rule)
    }

    /// Whether the frame's extent depends on this register.
    pub(super) fn cfa_is_on(&self, register: u16) -> bool {
        match &self.cfa {
            Cfa::Register(number, _) => *number == register,
            // DW_OP_breg0 and up; expressions in practice begin with the register they are on.
            Cfa::Expression(code) => code.first().is_some_and(|op| u16::from(*op) == 0x70 + register),
        }
    }
}

/// The unwind table of one object.
pub(super) struct UnwindTable {
    section: TableSection,
    index: Index,
}

enum Index {
    /// The object's own, at this address: pairs of first address and entry, each counted from the index itself.
    Header { at: u64, pairs: TableSection },
    /// Where none is loaded: first address of each function, and where its entry is; sorted.
    Ours { entries: Vec<(u64, u64)>, _share: Share },
}

/// Where the bytes of tables come from, and what they may cost.
#[derive(Clone, Copy)]
pub(super) struct TableInput<'m> {
    pub(super) memory: &'m dyn Memory,
    pub(super) limits: &'m Limits,
}

impl UnwindTable {
    /// Reads the table of the object at `image`; from its file where it is not loaded with an index. `None` where
    /// there is none.
    pub(super) fn load(
        input: TableInput<'_>,
        image: &Image,
        file: impl FnOnce() -> Option<File>,
    ) -> Result<Option<Self>, Fault> {
        match Self::from_memory(input, image)? {
            Some(table) => Ok(Some(table)),
            None => file().map_or(Ok(None), |file| Self::from_file(input, &file, image.bias())),
        }
    }

    fn from_memory(input: TableInput<'_>, image: &Image) -> Result<Option<Self>, Fault> {
        let Some((at, size)) = image.eh_frame_hdr() else { return Ok(None) };
        let head = input.memory.read_up_to(at, size.min(64) as usize).unwrap_or_default();
        let bases = BaseAddresses::default().set_eh_frame_hdr(at.0);
        let start = EhFrameHdr::new(&head, LittleEndian).parse(&bases, 8).and_then(|it| it.eh_frame_ptr().direct());
        let Ok(start) = start else { return Ok(None) };
        // Nothing tells its size; it ends at the latest with its segment.
        let Some(end) = image.segment_end(RemoteAddr(start)) else { return Ok(None) };
        let size = end.0.saturating_sub(start);
        let Some(count) = count_of_pairs(&head) else {
            let section = TableSection::copied(input, start, size, MAX_SEARCHED).ok_or(Fault::Unindexed)?;
            return Self::searched(input, section).map(Some);
        };
        let section = TableSection::new(input, start, size, COPIED);
        let pairs = at.0.saturating_add(INDEX_HEAD);
        let room = image.segment_end(RemoteAddr(pairs)).map_or(0, |end| end.0.saturating_sub(pairs));
        let pairs = TableSection::new(input, pairs, (count * 8).min(room), COPIED);
        Ok(Some(Self { section, index: Index::Header { at: at.0, pairs } }))
    }

    fn from_file(input: TableInput<'_>, file: &File, bias: u64) -> Result<Option<Self>, Fault> {
        let Some(object) = ObjectFile::open(file, input.limits) else { return Ok(None) };
        let Some(found) = object.section(".eh_frame") else { return Ok(None) };
        let share = Some(found.size).filter(|size| *size <= MAX_SEARCHED).and_then(|size| input.limits.share(size));
        let share = share.ok_or(Fault::Unindexed)?;
        let Some(bytes) = object.read(found.offset, found.size) else { return Ok(None) };
        Self::searched(input, TableSection::of_bytes(found.addr.wrapping_add(bias), bytes, share)).map(Some)
    }

    /// Finds the entries of a table that has no index of its own. A corrupt one ends the search.
    fn searched(input: TableInput<'_>, section: TableSection) -> Result<Self, Fault> {
        let mut entries = Vec::new();
        let mut decoded = 0;
        for (number, at) in section.places().enumerate() {
            if number % BATCH == 0 && input.limits.is_over() {
                return Err(Fault::Time);
            }
            if let Ok(Some(entry)) = UnwindEntry::read(&section, input.memory, at) {
                decoded += entry.len();
                entries.extend(entry.function().map(|start| (start, at)));
            }
            if entries.len() >= MAX_FUNCTIONS || decoded > MAX_DECODED {
                return Err(Fault::Unindexed);
            }
        }
        let share = input.limits.share(entries.len() as u64 * 16).ok_or(Fault::Unindexed)?;
        entries.sort_unstable();
        entries.shrink_to_fit();
        Ok(Self { section, index: Index::Ours { entries, _share: share } })
    }

    /// The row for the instruction at `addr`. `None` where the table covers no such address, or is corrupt.
    pub(super) fn row(&self, memory: &dyn Memory, addr: u64) -> Result<Option<UnwindRow>, Fault> {
        let at = match &self.index {
            Index::Header { at, pairs } => look_up(pairs, memory, *at, addr),
            Index::Ours { entries, .. } => {
                let behind = entries.partition_point(|(start, _)| *start <= addr);
                behind.checked_sub(1).map(|last| entries[last].1)
            }
        };
        let Some(at) = at else { return Ok(None) };
        let Some(entry) = UnwindEntry::read(&self.section, memory, at)? else { return Ok(None) };
        entry.with(|section, bases, entry| decode_row(section, bases, entry, addr)).unwrap_or(Ok(None))
    }
}

/// The row of an entry for the instruction at `addr`; `None` where it does not cover that, or is corrupt.
pub(super) fn decode_row<'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Bytes<'b>>,
    addr: u64,
) -> Result<Option<UnwindRow>, Fault> {
    if !entry.contains(addr) || entry.cie().return_address_register().0 != crate::arch::RETURN {
        return Ok(None);
    }
    let mut context = UnwindContext::new();
    let Ok(row) = entry.unwind_info_for_address(section, bases, &mut context, addr) else { return Ok(None) };
    let code = |expression: &gimli::UnwindExpression<usize>| match expression.get(section) {
        Ok(expression) if expression.0.len() > MAX_EXPRESSION => Err(Fault::TooLong),
        Ok(expression) => Ok(expression.0.slice().to_vec()),
        // It lies outside of the entry: nothing can be evaluated, and nothing comes of it.
        Err(_) => Ok(Vec::new()),
    };
    let cfa = match row.cfa() {
        gimli::CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
        gimli::CfaRule::Expression(expression) => Cfa::Expression(code(expression)?),
    };
    let mut rules = Vec::new();
    // Others than the general registers and the return address are of no use to a walk.
    for (register, rule) in row.registers().filter(|(register, _)| register.0 <= crate::arch::RETURN) {
        let rule = match rule {
            RegisterRule::SameValue => Rule::Same,
            RegisterRule::Offset(offset) => Rule::At(*offset),
            RegisterRule::ValOffset(offset) => Rule::Is(*offset),
            RegisterRule::Register(other) => Rule::Register(other.0),
            RegisterRule::Expression(expression) => Rule::AtExpression(code(expression)?),
            RegisterRule::ValExpression(expression) => Rule::IsExpression(code(expression)?),
            _ => Rule::Undefined,
        };
        rules.push((register.0, rule));
    }
    rules.shrink_to_fit();
    let function = (entry.initial_address(), entry.end_address());
    let lsda = entry.lsda().and_then(|lsda| lsda.direct().ok());
    Ok(Some(UnwindRow { function, lsda, cfa, rules, signal: entry.is_signal_trampoline() }))
}

/// How many pairs an index has that is in the form that all linkers write: a version, three encodings (0x1b, 0x03,
/// 0x3b), where the table is, and a count, which is the target's claim.
fn count_of_pairs(head: &[u8]) -> Option<u64> {
    let count = u32_at(head, 8)?;
    (head.starts_with(&[1, 0x1b, 0x03, 0x3b]) && count > 0).then_some(count.into())
}

/// Where the entry of the last function that begins at or before `addr` is.
fn look_up(pairs: &TableSection, memory: &dyn Memory, base: u64, addr: u64) -> Option<u64> {
    let place = |word: [u8; 4]| base.wrapping_add_signed(i32::from_le_bytes(word).into());
    let (mut low, mut high) = (0, pairs.len / 8);
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut pair = [[0; 4]; 2];
        // What is behind the end of what can be read is not there.
        let is_there = pairs.read(memory, pairs.start + middle * 8, pair.as_flattened_mut()) == 8;
        if is_there && place(pair[0]) <= addr {
            (low, found) = (middle + 1, Some(place(pair[1])));
        } else {
            high = middle;
        }
    }
    found
}
