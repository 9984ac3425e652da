//! Unwind tables (`.eh_frame`) of one object, as they lie in the target's memory.
//!
//! Compilers put the table and its index (`.eh_frame_hdr`) into loaded segments, because C++ and Rust
//! need them at run time. So they can be had without the file: of deleted and replaced libraries, and
//! in containers. All addresses here are run-time addresses.

use crate::RemoteAddr;
use crate::elf::{Image, ObjectFile};
use crate::target::{Limits, Memory};
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
};
use std::fs::File;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Larger than the tables of any program seen; one that claims more is not followed.
const MAX_TABLE: u64 = 256 << 20;
/// More functions than any object has.
const MAX_FUNCTIONS: usize = 8 << 20;

/// How the frame of a function is undone at one instruction.
#[derive(Clone, Debug)]
pub(crate) struct Row {
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

impl Row {
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
pub(super) struct Table {
    section: Vec<u8>,
    bases: BaseAddresses,
    index: Index,
}

enum Index {
    /// The object's own: pairs of first address and entry, each counted from the index itself.
    Header { at: u64, pairs: Vec<u8> },
    /// Where none is loaded: first address and place of each entry, sorted.
    Ours(Vec<(u64, usize)>),
}

impl Table {
    /// Reads the table of the object at `image`; from its file where it is not loaded with an index.
    pub(super) fn load(memory: &dyn Memory, image: &Image, file: impl FnOnce() -> Option<File>) -> Option<Self> {
        Self::from_memory(memory, image).or_else(|| Self::from_file(&file()?, image.bias()))
    }

    fn from_memory(memory: &dyn Memory, image: &Image) -> Option<Self> {
        let (at, size) = image.eh_frame_hdr().filter(|(_, size)| *size <= MAX_TABLE)?;
        let header = read(memory, at, size)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(at.0);
        let parsed = EhFrameHdr::new(&header, LittleEndian).parse(&bases, 8).ok()?;
        let start = RemoteAddr(parsed.eh_frame_ptr().direct().ok()?);
        // Nothing tells its size; it ends at the latest with its segment.
        let size = image.segment_end(start)?.0.checked_sub(start.0).filter(|size| *size <= MAX_TABLE)?;
        let section = read(memory, start, size)?;
        let bases = bases.set_eh_frame(start.0);
        let index = match sorted_pairs(&header) {
            Some(pairs) => Index::Header { at: at.0, pairs: pairs.to_vec() },
            None => index(&section, &bases),
        };
        Some(Self { section, bases, index })
    }

    fn from_file(file: &File, bias: u64) -> Option<Self> {
        let object = ObjectFile::open(file, &Limits::default())?;
        let found = object.section(".eh_frame").filter(|section| section.size <= MAX_TABLE)?;
        let section = object.read(found.offset, found.size)?;
        let bases = BaseAddresses::default().set_eh_frame(found.addr.wrapping_add(bias));
        let index = index(&section, &bases);
        Some(Self { section, bases, index })
    }

    /// The row for the instruction at `addr`. `None` where the table covers no such address, or is corrupt.
    pub(super) fn row(&self, addr: u64) -> Option<Row> {
        let mut section = EhFrame::new(&self.section, LittleEndian);
        section.set_address_size(8);
        let offset = match &self.index {
            Index::Header { at, pairs } => {
                let entry = look_up(pairs, *at, addr)?;
                let offset = entry.checked_sub(self.bases.eh_frame.section?)?;
                gimli::EhFrameOffset(usize::try_from(offset).ok()?)
            }
            Index::Ours(entries) => {
                let behind = entries.partition_point(|(start, _)| *start <= addr);
                gimli::EhFrameOffset(entries.get(behind.checked_sub(1)?)?.1)
            }
        };
        let entry = section.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()?;
        if !entry.contains(addr) || entry.cie().return_address_register().0 != super::registers::RETURN {
            return None;
        }
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&section, &self.bases, &mut context, addr).ok()?;
        let code = |expression: &gimli::UnwindExpression<usize>| {
            expression.get(&section).ok().map(|expression| expression.0.slice().to_vec())
        };
        let cfa = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            gimli::CfaRule::Expression(expression) => Cfa::Expression(code(expression)?),
        };
        let mut rules = Vec::new();
        for (register, rule) in row.registers() {
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
        let function = (entry.initial_address(), entry.end_address());
        let lsda = entry.lsda().and_then(|lsda| lsda.direct().ok());
        Some(Row { function, lsda, cfa, rules, signal: entry.is_signal_trampoline() })
    }
}

/// The pairs of an index in the form that all linkers write: a version, three encodings (0x1b, 0x03, 0x3b),
/// where the table is, and a count, which is the target's claim.
fn sorted_pairs(header: &[u8]) -> Option<&[u8]> {
    let (fixed, pairs) = header.split_at_checked(12)?;
    let count = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize;
    let length = count.checked_mul(8)?.min(pairs.len() / 8 * 8);
    (fixed[..4] == [1, 0x1b, 0x03, 0x3b] && length > 0).then(|| &pairs[..length])
}

/// Where the entry of the last function that begins at or before `addr` is.
fn look_up(pairs: &[u8], base: u64, addr: u64) -> Option<u64> {
    let number = |at: usize| {
        let bytes = pairs.get(at..at + 4)?;
        Some(base.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))))
    };
    let (mut low, mut high) = (0, pairs.len() / 8);
    while low < high {
        let middle = low + (high - low) / 2;
        if number(middle * 8)? <= addr { low = middle + 1 } else { high = middle }
    }
    number(low.checked_sub(1)? * 8 + 4)
}

/// The places of all entries, for a table without an index of its own. A corrupt entry ends it.
fn index(section: &[u8], bases: &BaseAddresses) -> Index {
    let mut table = EhFrame::new(section, LittleEndian);
    table.set_address_size(8);
    let mut found = Vec::new();
    let mut entries = table.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
        {
            found.push((entry.initial_address(), entry.offset()));
        }
        if found.len() >= MAX_FUNCTIONS {
            break;
        }
    }
    found.sort_unstable();
    Index::Ours(found)
}

/// What can be read of `size` bytes: a segment may reach beyond its file.
fn read(memory: &dyn Memory, addr: RemoteAddr, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let got = memory.read_at(addr, &mut bytes).ok()?;
    bytes.truncate(got);
    Some(bytes)
}
