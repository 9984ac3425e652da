//! Debug information and symbols of a file that the target maps: it may be anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use threadglass::symbols::ObjectNames;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fd) = memfd_create(c"object", MFdFlags::MFD_CLOEXEC) else { return };
    let mut file = File::from(fd);
    if file.write_all(bytes).is_err() {
        return;
    }
    let mut names = ObjectNames::new(file);
    let locks = names.lock_variables();
    for addr in locks.iter().map(|lock| lock.addr).take(64).chain([0, 0x1000, 0x4040, u64::MAX]) {
        let _ = names.variable_at(addr);
    }
    for pc in [0, 0x1000, 0x1139, u64::MAX] {
        let _ = names.members_at(pc);
    }
});
