//! Files of programs that say other things than are true, and still run.
//!
//! Only what the loader does not read is changed: sections, their headers and what lies in them. So a patched copy of a
//! program runs as the program does, and whoever looks at it reads what the patch says.

mod cases;
mod dwarf;

pub use cases::{CASES, Case};

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

const SECTION_HEADER: usize = 64;
/// How sections are packed.
const SHF_COMPRESSED: u64 = 0x800;
const SHT_PROGBITS: u32 = 1;

/// Where the bytes of a section come from.
#[derive(Clone, Debug)]
enum Content {
    /// They stay where they are.
    Kept,
    Bytes(Vec<u8>),
    /// Nothing but zeros, which take no room on a disk.
    Hole(u64),
}

/// One section.
#[derive(Clone, Debug)]
struct PatchedSection {
    name: String,
    header: [u8; SECTION_HEADER],
    content: Content,
}

/// A copy of an object's file, to be changed.
#[derive(Clone, Debug)]
pub struct ObjectPatch {
    bytes: Vec<u8>,
    sections: Vec<PatchedSection>,
    /// The number of sections that the header claims, and where it claims it.
    claimed_count: Option<u64>,
    /// What is claimed to be the size of the names of sections.
    names: Option<u64>,
}

impl ObjectPatch {
    /// The object at `path`, as it is.
    pub fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let start = number(&bytes, 40, 8) as usize;
        let (count, names) = (number(&bytes, 60, 2) as usize, number(&bytes, 62, 2) as usize);
        let headers: Vec<[u8; SECTION_HEADER]> = bytes[start..].as_chunks().0.iter().take(count).copied().collect();
        let strings = number(&headers[names], 24, 8) as usize;
        let name = |header: &[u8]| {
            let rest = &bytes[strings + number(header, 0, 4) as usize..];
            let end = rest.iter().position(|byte| *byte == 0).expect("names end");
            String::from_utf8_lossy(&rest[..end]).into_owned()
        };
        let sections = headers
            .iter()
            .map(|header| PatchedSection { name: name(header), header: *header, content: Content::Kept })
            .collect();
        Self { bytes, sections, claimed_count: None, names: None }
    }

    fn section(&mut self, name: &str) -> &mut PatchedSection {
        let index = self.sections.iter().position(|section| section.name == name).unwrap_or_else(|| {
            let mut header = [0; SECTION_HEADER];
            put(&mut header, 4, SHT_PROGBITS.into(), 4);
            put(&mut header, 48, 1, 8);
            self.sections.push(PatchedSection { name: name.to_owned(), header, content: Content::Kept });
            self.sections.len() - 1
        });
        &mut self.sections[index]
    }

    /// Gives the section `name` other bytes; adds it where there is none.
    pub fn set(mut self, name: &str, bytes: Vec<u8>) -> Self {
        let section = self.section(name);
        section.content = Content::Bytes(bytes);
        put(&mut section.header, 8, 0, 8);
        self
    }

    /// Gives it bytes that are packed by zlib.
    pub fn set_packed(self, name: &str, bytes: &[u8]) -> Self {
        self.set_packed_as(name, bytes.len() as u64, packed(bytes))
    }

    /// Gives it `front`, then `times` the `middle`, then `back`, packed: much in a file, and quickly made.
    pub fn set_repeated(self, name: &str, front: &[u8], middle: &[u8], times: usize, back: &[u8]) -> Self {
        let (size, packed) = packed_parts(front, middle, times, back);
        self.set_packed_as(name, size, packed)
    }

    /// Gives it bytes that are said to be packed, and to be of `size` when they are not.
    pub fn set_packed_as(mut self, name: &str, size: u64, packed: Vec<u8>) -> Self {
        let mut bytes = vec![0; 24];
        put(&mut bytes, 0, 1, 4);
        put(&mut bytes, 8, size, 8);
        put(&mut bytes, 16, 1, 8);
        bytes.extend(packed);
        let section = self.section(name);
        section.content = Content::Bytes(bytes);
        put(&mut section.header, 8, SHF_COMPRESSED, 8);
        self
    }

    /// Gives it zeros without number, which take no room.
    pub fn set_hole(mut self, name: &str, size: u64) -> Self {
        let section = self.section(name);
        section.content = Content::Hole(size);
        put(&mut section.header, 8, 0, 8);
        self
    }

    /// Takes a section away.
    pub fn without(mut self, name: &str) -> Self {
        // Numbers of sections are referred to: it stays, and is nothing.
        for section in self.sections.iter_mut().filter(|section| section.name == name) {
            section.name = String::new();
            put(&mut section.header, 4, 0, 4);
        }
        self
    }

    /// Claims this number of sections.
    pub fn claim_sections(self, count: u64) -> Self {
        Self { claimed_count: Some(count), ..self }
    }

    /// Claims that the names of sections take so much.
    pub fn claim_section_names(self, size: u64) -> Self {
        Self { names: Some(size), ..self }
    }

    /// Writes it to `path`, ready to run.
    pub fn write(mut self, path: &Path) {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o755);
        let mut file = options.open(path).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        let mut at = self.bytes.len() as u64;
        let mut put_at = |file: &mut File, bytes: &[u8]| {
            at = at.next_multiple_of(16);
            file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("room on the disk");
            at += bytes.len() as u64;
            at - bytes.len() as u64
        };
        let mut holes = Vec::new();
        for (index, section) in self.sections.iter_mut().enumerate() {
            if let Content::Bytes(bytes) = &section.content {
                let offset = put_at(&mut file, bytes);
                put(&mut section.header, 24, offset, 8);
                put(&mut section.header, 32, bytes.len() as u64, 8);
            } else if let Content::Hole(size) = section.content {
                holes.push((index, size));
            }
        }
        let mut names = vec![0];
        for section in &mut self.sections {
            put(&mut section.header, 0, names.len() as u64, 4);
            names.extend(section.name.as_bytes());
            names.push(0);
        }
        let names_at = put_at(&mut file, &names);
        let headers_at = at.next_multiple_of(16);
        let count = self.sections.len();
        let mut end = headers_at + ((count + 1) * SECTION_HEADER) as u64;
        for (index, size) in holes {
            put(&mut self.sections[index].header, 24, end, 8);
            put(&mut self.sections[index].header, 32, size, 8);
            end += size;
        }
        let mut last = [0; SECTION_HEADER];
        put(&mut last, 4, 3, 4);
        put(&mut last, 24, names_at, 8);
        put(&mut last, 32, self.names.unwrap_or(names.len() as u64), 8);
        end = end.max(names_at.saturating_add(self.names.unwrap_or(0)).min(1 << 42));
        if let Some(claimed) = self.claimed_count {
            put(&mut self.sections[0].header, 32, claimed, 8);
            end = end.max(headers_at + claimed.saturating_mul(SECTION_HEADER as u64).min(1 << 40));
        }
        let headers: Vec<u8> = self.sections.iter().map(|section| section.header).chain([last]).flatten().collect();
        file.seek(SeekFrom::Start(headers_at)).and_then(|_| file.write_all(&headers)).expect("room on the disk");
        put(&mut self.bytes, 40, headers_at, 8);
        put(&mut self.bytes, 60, if self.claimed_count.is_some() { 0 } else { count as u64 + 1 }, 2);
        put(&mut self.bytes, 62, count as u64, 2);
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&self.bytes)).expect("room on the disk");
        file.set_len(end).expect("a file may have holes");
    }
}

/// Bytes packed by zlib.
fn packed(bytes: &[u8]) -> Vec<u8> {
    packed_parts(bytes, &[], 0, &[]).1
}

/// `front`, then `times` the `middle`, then `back`, packed by zlib without making all of it; and how long it is.
fn packed_parts(front: &[u8], middle: &[u8], times: usize, back: &[u8]) -> (u64, Vec<u8>) {
    let mut encoder = flate2::Compress::new(flate2::Compression::fast(), false);
    let mut pack = |bytes: &[u8], flush| {
        let mut out = vec![0; bytes.len() + bytes.len() / 8 + 1024];
        let before = encoder.total_out();
        encoder.compress(bytes, &mut out, flush).expect("room for it");
        out.truncate((encoder.total_out() - before) as usize);
        out
    };
    // After a full flush, what follows does not depend on what came before: it can be repeated.
    let mut packed = vec![0x78, 0x01];
    packed.extend(pack(front, flate2::FlushCompress::Full));
    let again = pack(middle, flate2::FlushCompress::Full);
    (0..times).for_each(|_| packed.extend(&again));
    packed.extend(pack(back, flate2::FlushCompress::Finish));
    let mut sum = Adler(1, 0);
    sum.add(front);
    (0..times).for_each(|_| sum.add(middle));
    sum.add(back);
    packed.extend((sum.1 << 16 | sum.0).to_be_bytes());
    ((front.len() + middle.len() * times + back.len()) as u64, packed)
}

/// `times` mebibytes of zeros, packed.
fn packed_zeros(times: usize) -> Vec<u8> {
    // Their sum is not worth the time: who unpacks them has lost already.
    let (_, one) = packed_parts(&vec![0; 1 << 20], &[], 0, &[]);
    let (_, two) = packed_parts(&vec![0; 1 << 20], &vec![0; 1 << 20], 1, &[]);
    let (from, to) = (one.len() - 6, two.len() - 6);
    let mut packed = one[..from].to_vec();
    (1..times).for_each(|_| packed.extend(&two[from..to]));
    packed.extend(&two[to..]);
    packed
}

/// The sum at the end of what zlib packs.
struct Adler(u32, u32);

impl Adler {
    fn add(&mut self, bytes: &[u8]) {
        // So many at a time cannot overflow.
        for part in bytes.chunks(5552) {
            for byte in part {
                self.0 += u32::from(*byte);
                self.1 += self.0;
            }
            (self.0, self.1) = (self.0 % 65521, self.1 % 65521);
        }
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn put(bytes: &mut [u8], at: usize, number: u64, size: usize) {
    bytes[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]);
}
