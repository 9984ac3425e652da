//! Core files that are made to cost whoever looks at them as much as they can. They are written piece by piece: some
//! are large, and most of that is the same bytes again and again.

#[path = "../../../threadglass/tests/support/core_file.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod core_file;

use core_file::{descriptor, header, note, process, thread};
use std::path::PathBuf;
use tempfile::TempDir;

const PAGE: u64 = 0x1000;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_FILE: u32 = 0x4649_4c45;
/// Where memory begins that the tests make up.
const START: u64 = 0x7000_0000_0000;

/// A core file, removed when this is dropped.
pub struct HostileCore {
    _dir: TempDir,
    path: PathBuf,
}

impl HostileCore {
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn new(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        std::fs::write(&path, bytes).unwrap();
        Self { _dir: dir, path }
    }
}

/// What a segment has in the file.
#[derive(Clone, Copy)]
struct Segment {
    address: u64,
    /// Where its bytes are among those of all segments, and how many.
    from: u64,
    len: u64,
    flags: u32,
}

/// Puts a core together of headers for `segments` and for `times` times the same notes, these, and the bytes of the
/// segments, which may share them. More headers than fit into 16 bits are counted in a section header.
fn assemble(notes: &[u8], times: usize, segments: &[Segment], bytes: &[u8]) -> HostileCore {
    let count = segments.len() + times;
    let mut file = vec![0; 128];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    (file[16], file[18], file[32], file[40], file[52], file[54]) = (4, 62, 128, 64, 64, 56);
    file[56..58].copy_from_slice(&u16::try_from(count).unwrap_or(0xffff).to_le_bytes());
    file[64 + 44..64 + 48].copy_from_slice(&(count as u32).to_le_bytes());
    let notes_at = 128 + 56 * count as u64;
    let bytes_at = notes_at + notes.len() as u64;
    for _ in 0..times {
        file.extend(header(PT_NOTE, 0, notes_at, 0, notes.len() as u64, 0));
    }
    for segment in segments {
        file.extend(header(PT_LOAD, segment.flags, bytes_at + segment.from, segment.address, segment.len, segment.len));
    }
    file.extend(notes);
    file.extend(bytes);
    HostileCore::new(&file)
}

/// `NT_FILE` with these mappings, each of its name.
fn files(mappings: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut record = Vec::new();
    [mappings.len() as u64, PAGE].iter().for_each(|word| record.extend(word.to_le_bytes()));
    for (start, end, _) in mappings {
        [*start, *end, 0].iter().for_each(|word| record.extend(word.to_le_bytes()));
    }
    for (_, _, name) in mappings {
        record.extend(name.as_bytes());
        record.push(0);
    }
    note(NT_FILE, b"CORE\0", &record)
}

/// A thread that waits for a word of its own, with its stack pointer at `stack`.
fn waiter(lwp: u32, thread_pointer: u64, stack: u64) -> Vec<u8> {
    let mut note = thread(lwp, thread_pointer);
    // The record is behind the name; registers are 112 bytes into it.
    let mut register =
        |index: usize, value: u64| note[20 + 112 + index * 8..][..8].copy_from_slice(&value.to_le_bytes());
    register(14, thread_pointer + 0x800);
    register(13, 128);
    register(12, 2);
    register(19, stack);
    note
}

/// Very many threads, of which each waits for something else; the first have descriptors.
pub fn threads(count: u32) -> HostileCore {
    const DESCRIBED: u32 = 5000;
    let base = |index: u32| START + PAGE * u64::from(index);
    let mut notes = Vec::new();
    for index in 0..count {
        notes.extend(waiter(1000 + index, base(index), base(index) + 0x900));
        if index == 0 {
            notes.extend(process(1000));
        }
    }
    let bytes: Vec<u8> = (0..DESCRIBED).flat_map(|index| descriptor(base(index), 1000 + index)).collect();
    assemble(&notes, 1, &[Segment { address: START, from: 0, len: bytes.len() as u64, flags: 6 }], &bytes)
}

/// A list of files with more entries than there can be mappings, which is to be read again and again.
pub fn file_list(count: u64) -> HostileCore {
    let mut notes = waiter(1000, START, START);
    notes.extend(process(1000));
    let mappings: Vec<_> = (0..count).map(|index| (index * PAGE, (index + 1) * PAGE, "/a")).collect();
    notes.extend(files(&mappings));
    assemble(&notes, 2000, &[Segment { address: START, from: 0, len: PAGE, flags: 6 }], &vec![0; PAGE as usize])
}

/// Very many mappings of one file, whose name is as long as names can be.
pub fn long_names(count: u64) -> HostileCore {
    let name = "/long".repeat(800);
    let mut notes = waiter(1000, START, START);
    notes.extend(process(1000));
    notes.extend(files(&[(START, START + count * 2 * PAGE, name.as_str())]));
    let place = |index| Segment { address: START + index * 2 * PAGE, from: 0, len: PAGE, flags: 5 };
    assemble(&notes, 1, &(0..count).map(place).collect::<Vec<_>>(), &vec![0; PAGE as usize])
}

/// Stacks in memory that comes in pieces of one byte.
pub fn pieces(count: u64, threads: u32) -> HostileCore {
    let mut notes = Vec::new();
    for index in 0..threads {
        notes.extend(waiter(1000 + index, START + u64::from(index) * 16, START + u64::from(index) * 8));
    }
    notes.extend(process(1000));
    let place = |index| Segment { address: START + index, from: index % PAGE, len: 1, flags: 6 };
    assemble(&notes, 1, &(0..count).map(place).collect::<Vec<_>>(), &vec![1; PAGE as usize])
}

/// Objects whose symbols all have names that lie over one another and do not end, under the names of libc.
pub fn symbols(objects: u64) -> HostileCore {
    const SYMBOLS: usize = 200_000;
    const STRINGS: usize = 4 << 20;
    let strings_at = 0x2000 + SYMBOLS * 24;
    let len = (strings_at + STRINGS).next_multiple_of(PAGE as usize);
    let mut bytes = vec![b'a'; len];
    bytes[..0x2000].fill(0);
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    (bytes[16], bytes[18], bytes[32], bytes[54], bytes[56]) = (3, 62, 64, 56, 2);
    bytes[64..120].copy_from_slice(&header(PT_LOAD, 5, 0, 0, len as u64, len as u64));
    bytes[120..176].copy_from_slice(&header(2, 6, 0x1000, 0x1000, 80, 80));
    let dynamic = [(4, 0x1800), (5, strings_at), (6, 0x2000), (10, STRINGS), (0, 0)];
    for (index, (tag, value)) in dynamic.into_iter().enumerate() {
        bytes[0x1000 + index * 16..][..8].copy_from_slice(&(tag as u64).to_le_bytes());
        bytes[0x1008 + index * 16..][..8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    bytes[0x1804..0x1808].copy_from_slice(&(SYMBOLS as u32).to_le_bytes());
    for index in 0..SYMBOLS {
        let symbol = &mut bytes[0x2000 + index * 24..][..24];
        symbol.fill(0);
        symbol[..4].copy_from_slice(&(index as u32).to_le_bytes());
        (symbol[4], symbol[6]) = (0x12, 1);
        symbol[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    }
    let base = |index: u64| START + index * (len as u64 + 16 * PAGE);
    let names: Vec<String> = (0..objects).map(|index| format!("/nowhere/{index}/libc.so.6")).collect();
    let mut notes = waiter(1000, START, START);
    notes.extend(process(1000));
    let mappings = names.iter().enumerate().map(|(index, name)| {
        let start = base(index as u64);
        (start, start + len as u64, name.as_str())
    });
    notes.extend(files(&mappings.collect::<Vec<_>>()));
    let place = |index| Segment { address: base(index), from: 0, len: len as u64, flags: 5 };
    assemble(&notes, 1, &(0..objects).map(place).collect::<Vec<_>>(), &bytes)
}
