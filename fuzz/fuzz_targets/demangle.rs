//! Names of functions, which come from the target's symbol tables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::symbols::demangle;

fuzz_target!(|name: &str| {
    let _ = demangle(name);
    let _ = demangle(&format!("_Z{name}"));
    let _ = demangle(&format!("_R{name}"));
});
