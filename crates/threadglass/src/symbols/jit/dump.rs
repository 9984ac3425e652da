//! `jit-PID.dump`: a header, then records, each with its length, of functions that were generated or moved.
//!
//! All numbers are little-endian here: a file of another machine has another magic number.

use super::{MAX_NAME, WantedFunctions};
use crate::limits::Limits;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const FILE_HEADER: u64 = 40;
/// Kind, length and time of a record.
const PREFIX: usize = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Where the name of a function that was generated begins in its record.
const NAME: usize = 56;
/// Records that are read. Each takes a system call.
const MAX_RECORDS: usize = 1 << 21;
/// Functions that may be moved later.
const MAX_MOVABLE: usize = 1 << 20;
/// Records between two looks at the clock.
const STEP: usize = 1 << 10;

pub(super) fn read(file: &File, wanted: &mut WantedFunctions, limits: &Limits, name: &str) {
    if !decode(file, wanted, limits) {
        limits.leave_out(format!("the end of {name}"), "the file is too large");
    }
}

/// Whether all of it was read.
fn decode(file: &(impl FileExt + ?Sized), wanted: &mut WantedFunctions, limits: &Limits) -> bool {
    let mut buffer = [0; NAME + MAX_NAME];
    let head = part(file, 0, &mut buffer);
    let mut at = match (word(head, 0), word(head, 4), word(head, 8)) {
        (Some(MAGIC), Some(VERSION), Some(length)) if u64::from(length) >= FILE_HEADER => u64::from(length),
        _ => return true,
    };
    // Where the record of each function is, by the number that the file gives it.
    let mut loaded: HashMap<u64, u64> = HashMap::new();
    for number in 0..MAX_RECORDS {
        if number % STEP == 0 && limits.is_over() {
            return true;
        }
        let record = part(file, at, &mut buffer);
        let (Some(kind), Some(length)) = (word(record, 0), word(record, 4)) else { return true };
        if (length as usize) < PREFIX {
            return true;
        }
        let record = &record[..record.len().min(length as usize)];
        match kind {
            LOAD => {
                if let (Some(start), Some(size), Some(name)) = (long(record, 32), long(record, 40), name_in(record)) {
                    wanted.put(start, size, name);
                }
                if let Some(index) = long(record, 48).filter(|_| loaded.len() < MAX_MOVABLE) {
                    loaded.insert(index, at);
                }
            }
            MOVE => {
                let moved = (long(record, 40), long(record, 48), long(record, 56).and_then(|index| loaded.get(&index)));
                if let (Some(start), Some(size), Some(from)) = moved {
                    let mut origin = [0; NAME + MAX_NAME];
                    if let Some(name) = name_in(part(file, *from, &mut origin)) {
                        wanted.put(start, size, name);
                    }
                }
            }
            _ => {}
        }
        let Some(next) = at.checked_add(length.into()) else { return true };
        at = next;
    }
    false
}

/// What there is of the file at `at`, as much as there is room for.
fn part<'b>(file: &(impl FileExt + ?Sized), at: u64, buffer: &'b mut [u8]) -> &'b [u8] {
    let got = file.read_at(buffer, at).unwrap_or(0);
    &buffer[..got]
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The name in the record of a function that was generated.
fn name_in(record: &[u8]) -> Option<&[u8]> {
    let name = record.get(NAME..)?.split(|byte| *byte == 0).next()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io;

    /// A file in memory.
    struct Bytes(Vec<u8>);

    impl FileExt for Bytes {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
            let count = buf.len().min(self.0.len() - from);
            buf[..count].copy_from_slice(&self.0[from..from + count]);
            Ok(count)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            unreachable!("nothing is written")
        }
    }

    fn record(kind: u32, words: &[u64], rest: &[u8]) -> Vec<u8> {
        let length = (PREFIX + 8 + 8 * words.len() + rest.len()) as u32;
        let head = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        // A time, then a process and a thread.
        head.into_iter().chain([0; 16]).chain(words).chain(rest.iter().copied()).collect()
    }

    fn names(bytes: Vec<u8>, addrs: &[u64]) -> Vec<Option<String>> {
        let mut wanted = WantedFunctions::new(addrs);
        decode(&Bytes(bytes), &mut wanted, &Limits::default());
        wanted.found.into_iter().map(|it| it.map(|it| it.name)).collect()
    }

    fn header() -> Vec<u8> {
        let words = [MAGIC, VERSION, FILE_HEADER as u32, 62, 0, 1];
        words.iter().flat_map(|word| word.to_le_bytes()).chain([0; 16]).collect()
    }

    #[test]
    fn functions_that_were_generated_and_moved() {
        let mut bytes = header();
        bytes.extend(record(LOAD, &[0x1000, 0x1000, 0x20, 7], b"hot\0\xcc\xcc"));
        bytes.extend(record(9, &[], b"of a later version"));
        bytes.extend(record(LOAD, &[0x2000, 0x2000, 0x20, 8], b"other\0"));
        bytes.extend(record(MOVE, &[0, 0x1000, 0x5000, 0x20, 7], b""));
        bytes.extend(record(LOAD, &[0x1000, 0x1000, 8, 9], b"after\0"));
        let some = |name: &str| Some(name.to_owned());
        let expected = [some("hot"), some("after"), some("hot"), some("other"), None];
        assert_eq!(names(bytes.clone(), &[0x501f, 0x1000, 0x1008, 0x2000, 0x3000]), expected);
        bytes[0] = 0;
        assert_eq!(names(bytes, &[0x2000]), [None]);
    }

    proptest! {
        #[test]
        fn any_bytes(rest: Vec<u8>, addrs: Vec<u64>) {
            let bytes = [header(), rest].concat();
            prop_assert_eq!(names(bytes, &addrs).len(), addrs.len());
        }
    }
}
