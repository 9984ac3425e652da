//! How large a table can be: whoever makes one keeps to it, and whoever reads one believes no more.

use crate::UNIT;

/// Objects there is room for if nothing else is said.
pub const OBJECTS: usize = 1 << 20;
/// At least.
pub const FEWEST: usize = 1 << 10;
/// At most.
pub const MOST: usize = 1 << 27;
/// Extras of a table, at most.
pub const EXTRAS: usize = 1 << 16;

/// Units for so many objects: rwlocks need two, and nobody has as many of them as of everything else.
pub const fn units(objects: usize) -> usize {
    objects + objects / 4 + 1
}

/// Slots of the index for so many objects.
pub const fn slots(objects: usize) -> usize {
    let slots = (objects * 4).next_power_of_two();
    if slots < 1024 { 1024 } else { slots }
}

/// Extras for so many objects.
pub const fn extras(objects: usize) -> usize {
    if objects < EXTRAS { objects } else { EXTRAS }
}

// Numbers of units are 32 bits wide.
const _: () = assert!(units(MOST) < 1 << 32 && units(MOST) * UNIT < 1 << 40);
