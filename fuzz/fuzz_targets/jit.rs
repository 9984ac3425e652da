//! The lists of generated code that programs write for profilers, of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use threadglass::Limits;
use threadglass::internals::JitFiles;

fn file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("fuzz", MFdFlags::MFD_CLOEXEC).expect("a file in memory"));
    file.write_all(bytes).expect("a file in memory");
    file
}

/// Whether it tells of a move, the words of it, and a name.
type Record = (bool, Vec<u64>, Vec<u8>);

/// A header, then records with their right length, each of a kind, some words and a name.
fn dump(records: &[Record], rest: &[u8]) -> Vec<u8> {
    let words: [u32; 6] = [0x4a69_5444, 1, 40, 62, 0, 1];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain([0; 16]).collect();
    for (is_moved, words, name) in records {
        let length = (24 + 8 * words.len() + name.len()) as u32;
        bytes.extend(u32::from(*is_moved).to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(name);
    }
    bytes.extend(rest);
    bytes
}

fuzz_target!(|input: (Vec<u8>, Vec<Record>, Vec<u8>, Vec<u64>)| {
    let (map, records, rest, addrs) = input;
    let files = JitFiles::from_files(file(&map), file(&dump(&records, &rest)));
    let limits = Limits::default();
    let found = files.functions_at(&addrs, &limits);
    assert_eq!(found.len(), addrs.len());
    for (addr, function) in addrs.iter().zip(&found) {
        let Some((function, _)) = function else { continue };
        assert!(function.start <= *addr && !function.name.is_empty());
        // A byte that is no text takes three.
        assert!(function.name.len() <= 3 * 4096);
    }
});
