//! A stack, and the unwind table that is to undo it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::{MAX_FRAMES, Registers, Space, walk_bytes};
use threadglass_fuzz::unwind::{BASE, STACK, Scene};

fuzz_target!(|scene: Scene| {
    let (target, end) = scene.assemble();
    let space = Space::new(&target, &[(RemoteAddr(BASE), end)]);
    let (pc, sp) = (RemoteAddr(BASE + 0x1000 + u64::from(scene.pc)), RemoteAddr(STACK + u64::from(scene.sp)));
    let mut registers = Registers::blocked(pc, sp);
    if let Some(all) = scene.registers {
        registers.general = all.map(Some);
    }
    let walk = walk_bytes(&space, registers);
    assert!(walk.places.len() <= MAX_FRAMES && !walk.places.is_empty());
});
