//! An ELF file that the target maps: it may be anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use threadglass::elf::{FileSymbols, build_id_of_file};
use threadglass::glibc::SYMBOLS;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fd) = memfd_create(c"object", MFdFlags::MFD_CLOEXEC) else { return };
    let mut file = File::from(fd);
    if file.write_all(bytes).is_err() {
        return;
    }
    let _ = build_id_of_file(&file);
    let symbols = FileSymbols::new(file);
    let _ = symbols.addresses_of(SYMBOLS, u64::MAX);
    for addr in [0, 0x1000, 0x1139, u64::MAX] {
        let _ = symbols.function_at(addr);
    }
});
