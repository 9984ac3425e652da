//! An ELF object in the target's memory.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::Image;
use threadglass::target::{Bytes, SYMBOLS};
use threadglass_fuzz::object::{BASE, Object};

#[derive(Arbitrary, Debug)]
enum Input {
    Raw { base: u64, bytes: Vec<u8> },
    Assembled(Object),
}

fuzz_target!(|input: Input| {
    let (target, base) = match input {
        Input::Raw { base, bytes } => {
            let mut target = Bytes::default();
            target.map(RemoteAddr(base), bytes);
            (target, RemoteAddr(base))
        }
        Input::Assembled(object) => (object.assemble(), BASE),
    };
    let Ok(mut image) = Image::load(&target, base) else { return };
    let _ = image.build_id(&target);
    let _ = image.load_symbols(&target);
    let named: Vec<_> =
        SYMBOLS.iter().chain(&["", "main"]).filter_map(|name| image.address_of(&target, name)).collect();
    for addr in named.into_iter().chain([RemoteAddr::NULL, base, base.offset(0x1000), RemoteAddr(u64::MAX)]) {
        if let Some(function) = image.function_at(&target, addr) {
            assert!(function.addr <= addr);
        }
    }
});
