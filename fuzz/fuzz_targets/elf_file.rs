//! An ELF file that the target maps: it may be anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use threadglass::Limits;
use threadglass::internals::{DataSymbols, FileSymbols, build_id_of_file};
use threadglass::target::SYMBOLS;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fd) = memfd_create(c"object", MFdFlags::MFD_CLOEXEC) else { return };
    let mut file = File::from(fd);
    if file.write_all(bytes).is_err() {
        return;
    }
    let _ = build_id_of_file(&file);
    let limits = Limits::default();
    let _look = limits.begin();
    let data = DataSymbols::read(&file, &limits);
    // An entry takes 24 bytes in the file.
    assert!(data.of_size(&[8, 32, 40, 48, 56]).len() <= bytes.len() / 24);
    let symbols = FileSymbols::new(&file, &limits);
    assert!(symbols.functions_named("main").len() <= 64);
    let _ = symbols.addresses_of(SYMBOLS, u64::MAX);
    for addr in [0, 0x1000, 0x1139, u64::MAX] {
        let _ = symbols.function_at(addr);
    }
});
