//! Names of functions, which come from the target's symbol tables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::internals::demangle;

/// What a name may come to, if it is not left as it is.
const LONGEST: usize = 64 << 10;

fuzz_target!(|name: &str| {
    for name in [name.to_owned(), format!("_Z{name}"), format!("_R{name}")] {
        let plain = demangle(&name);
        assert!(plain == name || plain.len() <= LONGEST);
    }
});
