//! Thread-specific data: key tables and value blocks with any numbers in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::PthreadId;
use threadglass::internals::glibc::{Layout, tsd};
use threadglass_fuzz::glibc::Program;

fuzz_target!(|program: Program| {
    let target = program.assemble();
    let Ok(layout) = Layout::discover(&target.memory, &target.memory, &target.hints) else { return };
    let Some(key_layout) = &layout.keys else { return };
    let Ok(keys) = tsd::keys(&target.memory, key_layout) else { return };
    assert!(keys.len() as u64 <= key_layout.count);
    assert!(keys.is_sorted_by_key(|key| key.number));
    for base in &target.threads {
        if let Ok(values) = tsd::values(&target.memory, &layout, PthreadId(*base), &keys) {
            assert!(values.len() <= keys.len());
        }
    }
});
