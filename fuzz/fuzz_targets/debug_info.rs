//! Debug information and symbols of a file that the target maps: it may be anything, packed or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use threadglass::Limits;
use threadglass::internals::ObjectNames;

/// No name or path is longer, however it is made: four parts of a path, or the scopes of a name.
const LONGEST: usize = 64 * 3 * 4096;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fd) = memfd_create(c"object", MFdFlags::MFD_CLOEXEC) else { return };
    let mut file = File::from(fd);
    if file.write_all(bytes).is_err() {
        return;
    }
    let limits = Limits::default();
    let _look = limits.begin();
    let names = ObjectNames::new(file, &limits, &threadglass::internals::Types);
    let locks = names.lock_variables();
    for addr in locks.iter().map(|lock| lock.address.0).take(64).chain([0, 0x1000, 0x4040, u64::MAX]) {
        assert!(names.variable_at(addr).is_none_or(|name| name.len() <= LONGEST));
    }
    for pc in [0, 0x1000, 0x1139, u64::MAX] {
        let _ = names.members_at(pc);
    }
    for pc in (0x1000..0x1200).step_by(16).chain([0, 1, u64::MAX]) {
        for function in names.functions_at(pc) {
            assert!(function.name.is_none_or(|name| name.len() <= LONGEST));
            assert!(function.file.is_none_or(|file| file.len() <= LONGEST));
        }
    }
});
