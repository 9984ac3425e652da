//! The block by which an agent that was injected says where it listens, of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use table::control::{CONTROL_SIZE, ControlView};
use table::{MAGIC, VERSION};

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (is_one, rest) = input;
    let mut bytes = [0; CONTROL_SIZE];
    let length = rest.len().min(CONTROL_SIZE);
    bytes[..length].copy_from_slice(&rest[..length]);
    if is_one {
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    }
    let begins = bytes.starts_with(&MAGIC) && bytes[8..12] == VERSION.to_le_bytes();
    let view = ControlView::read(&bytes);
    assert_eq!(view.is_some(), begins);
    let Some(view) = view else { return };
    // Every number is one of the bytes, wherever it is: nothing is made up.
    let has = |number: &[u8]| bytes.windows(number.len()).any(|window| window == number);
    let words = [view.state, view.tid, view.fd, view.patched, view.missed, view.times];
    assert!(words.iter().all(|word| has(&word.to_le_bytes())) && has(&view.inode.to_le_bytes()));
});
