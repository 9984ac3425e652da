//! A loaded ELF object whose every count, size and address may lie.

use arbitrary::Arbitrary;
use threadglass::RemoteAddr;
use threadglass::target::Bytes;

/// Where the object is mapped.
pub const BASE: RemoteAddr = RemoteAddr(0x10_0000);
const PHDR_SIZE: usize = 56;
/// Where the parts lie, counted from the base.
const DYNAMIC: u64 = 0x1000;
const TABLES: u64 = 0x2000;
const NOTES: u64 = 0x4000;

/// A choice between the right value and any other.
#[derive(Arbitrary, Debug)]
pub enum Claim {
    Right,
    Near(i8),
    Any(u64),
}

impl Claim {
    /// The value to write where `right` would be true.
    pub fn or(&self, right: u64) -> u64 {
        match self {
            Self::Right => right,
            Self::Near(by) => right.wrapping_add_signed(i64::from(*by)),
            Self::Any(value) => *value,
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Segment {
    kind: u8,
    offset: Claim,
    vaddr: Claim,
    size: Claim,
}

#[derive(Arbitrary, Debug)]
struct Dynamic {
    tag: u8,
    value: Claim,
}

/// What the input decides.
#[derive(Arbitrary, Debug)]
pub struct Object {
    phoff: Claim,
    phentsize: Claim,
    phnum: Claim,
    segments: Vec<Segment>,
    dynamic: Vec<Dynamic>,
    gnu_hash: Vec<u32>,
    symbols: Vec<(u32, u8, u16, u64, u64)>,
    strings: Vec<u8>,
    notes: Vec<u8>,
    /// Bytes that are not there although the headers say so.
    hole: Option<u16>,
}

impl Object {
    /// The object in the memory of a target.
    pub fn assemble(&self) -> Bytes {
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 62;
        header[32..40].copy_from_slice(&self.phoff.or(64).to_le_bytes());
        header[54..56].copy_from_slice(&(self.phentsize.or(PHDR_SIZE as u64) as u16).to_le_bytes());
        header[56..58].copy_from_slice(&(self.phnum.or(self.segments.len() as u64 + 1) as u16).to_le_bytes());
        header.extend(segment(1, 0, 0, 0x8000));
        for one in self.segments.iter().take(60) {
            let (kind, at, size) = match one.kind % 3 {
                0 => (2, DYNAMIC, self.dynamic.len() as u64 * 16 + 64),
                1 => (4, NOTES, self.notes.len() as u64),
                _ => (1, 0, 0x8000),
            };
            header.extend(segment(kind, one.offset.or(at), one.vaddr.or(at), one.size.or(size)));
        }

        let hash_at = TABLES;
        let symbols_at = hash_at + self.gnu_hash.len() as u64 * 4;
        let strings_at = symbols_at + self.symbols.len() as u64 * 24;
        let right = |tag: u64| match tag {
            4 | 0x6fff_fef5 => hash_at,
            5 => strings_at,
            6 => symbols_at,
            10 => self.strings.len() as u64,
            _ => 0,
        };
        let mut dynamic = Vec::new();
        for one in self.dynamic.iter().take(200) {
            let tag: u64 = [4, 5, 6, 10, 0x6fff_fef5, 11][usize::from(one.tag) % 6];
            dynamic.extend(tag.to_le_bytes());
            dynamic.extend(one.value.or(right(tag)).to_le_bytes());
        }
        dynamic.extend([0; 64]);

        let mut tables: Vec<u8> = self.gnu_hash.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (name, info, section, value, size) in &self.symbols {
            tables.extend(name.to_le_bytes());
            tables.extend([*info, 0]);
            tables.extend(section.to_le_bytes());
            tables.extend(value.to_le_bytes());
            tables.extend(size.to_le_bytes());
        }
        tables.extend(&self.strings);
        if let Some(hole) = self.hole {
            tables.truncate(usize::from(hole));
        }

        let mut target = Bytes::default();
        target.map(BASE, header);
        target.map(BASE.offset(DYNAMIC), dynamic);
        target.map(BASE.offset(TABLES), tables);
        target.map(BASE.offset(NOTES), self.notes.clone());
        target
    }
}

fn segment(kind: u32, offset: u64, vaddr: u64, size: u64) -> [u8; PHDR_SIZE] {
    let mut out = [0; PHDR_SIZE];
    out[..4].copy_from_slice(&kind.to_le_bytes());
    out[8..16].copy_from_slice(&offset.to_le_bytes());
    out[16..24].copy_from_slice(&vaddr.to_le_bytes());
    out[40..48].copy_from_slice(&size.to_le_bytes());
    out
}
