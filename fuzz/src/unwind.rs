//! An object with an unwind table, and a stack, from whatever bytes the fuzzer gives.

use arbitrary::Arbitrary;
use threadglass::RemoteAddr;
use threadglass::target::Bytes;

/// Where the object is loaded.
pub const BASE: u64 = 0x40_0000;
/// Where the stack begins.
pub const STACK: u64 = 0x7000_0000;
/// Code begins here, from the object's start.
const CODE: usize = 0x1000;

/// The parts.
#[derive(Arbitrary, Debug)]
pub struct Scene {
    /// Bytes that the object claims to have behind its last: a table that is large is not copied.
    pub claimed: u32,
    /// The index's own words, or a well-formed index over `entries`.
    pub raw_index: Option<Vec<u8>>,
    /// First address (from the object's start) and place in the table of each function.
    pub entries: Vec<(u16, u16)>,
    /// The table.
    pub table: Vec<u8>,
    /// Code.
    pub code: Vec<u8>,
    /// The stack; the words of it are often addresses, so some are made so.
    pub stack: Vec<u8>,
    /// Which words of the stack are code, and where in it.
    pub returns: Vec<(u8, u16)>,
    /// Which words of the stack are places in the stack.
    pub links: Vec<(u8, u16)>,
    /// Where the thread is.
    pub pc: u16,
    /// Its stack pointer, from the stack's start.
    pub sp: u16,
    /// All of its registers, when it was stopped.
    pub registers: Option<[u64; 16]>,
}

impl Scene {
    /// The memory, and one past the object's end.
    pub fn assemble(&self) -> (Bytes, RemoteAddr) {
        let index_at = CODE + self.code.len().next_multiple_of(16);
        let index = self.raw_index.clone().unwrap_or_else(|| self.index(index_at as u64));
        let table_at = index_at + index.len().next_multiple_of(8);
        let end = table_at + self.table.len();
        let mut image = vec![0; end];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18] = 62;
        image[32] = 64;
        image[54] = 56;
        image[56] = 2;
        let mut header = |number: usize, kind: u32, at: usize, size: usize| {
            let from = 64 + number * 56;
            image[from..from + 4].copy_from_slice(&kind.to_le_bytes());
            for (place, value) in [(8, at), (16, BASE as usize + at), (32, size), (40, size)] {
                image[from + place..from + place + 8].copy_from_slice(&(value as u64).to_le_bytes());
            }
        };
        header(0, 1, 0, end + self.claimed as usize);
        header(1, 0x6474_e550, index_at, index.len());
        image[CODE..CODE + self.code.len()].copy_from_slice(&self.code);
        image[index_at..index_at + index.len()].copy_from_slice(&index);
        image[table_at..].copy_from_slice(&self.table);
        let mut stack = self.stack.clone();
        let mut put = |at: u8, value: u64| {
            if let Some(word) = stack.get_mut(usize::from(at) * 8..usize::from(at) * 8 + 8) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        };
        self.returns.iter().for_each(|(at, to)| put(*at, BASE + CODE as u64 + u64::from(*to)));
        self.links.iter().for_each(|(at, to)| put(*at, STACK + u64::from(*to)));
        let mut target = Bytes::default();
        target.map(RemoteAddr(BASE), image);
        target.map(RemoteAddr(STACK), stack);
        (target, RemoteAddr(BASE + end as u64))
    }

    /// `.eh_frame_hdr`: version, encodings, where the table is, and pairs sorted by address.
    fn index(&self, at: u64) -> Vec<u8> {
        let mut entries: Vec<_> = self.entries.iter().take(64).collect();
        entries.sort();
        let size = (12 + entries.len() * 8).next_multiple_of(8) as i32;
        let mut index = vec![1, 0x1b, 0x03, 0x3b];
        index.extend((size - 4).to_le_bytes());
        index.extend((entries.len() as u32).to_le_bytes());
        for (start, place) in entries {
            index.extend((CODE as i32 + i32::from(*start) - at as i32).to_le_bytes());
            index.extend((size + i32::from(*place)).to_le_bytes());
        }
        index
    }
}
