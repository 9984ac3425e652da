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

/// Stacks of waits that are kept.
pub const STACKS: usize = 1 << 9;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{HEADER_SIZE, header};
    use crate::{Extra, Header, MAGIC, VERSION};
    use core::mem::offset_of;

    #[test]
    fn a_header_that_claims_more_than_can_be_made_is_believed_no_further() {
        let mut bytes = [0xff; HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Header, version), &VERSION.to_le_bytes());
        put(offset_of!(Header, header_size), &(HEADER_SIZE as u32).to_le_bytes());
        put(offset_of!(Header, entry_size), &(UNIT as u32).to_le_bytes());
        put(offset_of!(Header, extra_size), &(size_of::<Extra>() as u32).to_le_bytes());
        put(offset_of!(Header, index_slots), &(slots(MOST) as u64).to_le_bytes());
        let view = header(&bytes).unwrap();
        assert_eq!((view.entries.1, view.entries.2), (units(MOST) as u64, units(MOST) as u64));
        assert_eq!((view.extras.1, view.extras.2), (EXTRAS as u64, EXTRAS as u64));
        bytes[offset_of!(Header, index_slots)..][..8].copy_from_slice(&(2 * slots(MOST) as u64).to_le_bytes());
        assert!(header(&bytes).is_err(), "an index that is larger than any");
    }
}
