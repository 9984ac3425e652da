//! Language-specific data of functions: where the run-time goes on when an exception comes out of a call.
//!
//! C++ and Rust share the format. A call inside the scope of a guard has a landing pad, whose code drops
//! the guard.

use gimli::{EndianSlice, LittleEndian, Reader};

/// Bytes of a table that are looked at; longer ones belong to no function seen.
pub(super) const MAX_LSDA: usize = 64 << 10;

/// "Not there", of encodings.
const OMIT: u8 = 0xff;

/// The landing pad for the instruction at `pc`, by the table `bytes` that lies at `at`, of the function
/// that begins at `function`. `None` when the call has none, or the table cannot be followed.
pub fn landing_pad(bytes: &[u8], at: u64, function: u64, pc: u64) -> Option<u64> {
    let bytes = bytes.get(..bytes.len().min(MAX_LSDA))?;
    let mut table = EndianSlice::new(bytes, LittleEndian);
    let position = |table: &EndianSlice<'_, LittleEndian>| at.wrapping_add((bytes.len() - table.len()) as u64);
    let base = match table.read_u8().ok()? {
        OMIT => function,
        encoding => {
            let place = position(&table);
            let value = number(&mut table, encoding)?;
            // Relative to itself, or absolute.
            if encoding & 0x70 == 0x10 { place.wrapping_add(value) } else { value }
        }
    };
    if table.read_u8().ok()? != OMIT {
        table.read_uleb128().ok()?;
    }
    let encoding = table.read_u8().ok()?;
    let length = usize::try_from(table.read_uleb128().ok()?).ok()?;
    let mut sites = EndianSlice::new(table.slice().get(..length.min(table.len()))?, LittleEndian);
    let wanted = pc.checked_sub(function)?;
    while !sites.is_empty() {
        let start = number(&mut sites, encoding)?;
        let length = number(&mut sites, encoding)?;
        let pad = number(&mut sites, encoding)?;
        sites.read_uleb128().ok()?;
        // Sorted by their start.
        if start > wanted {
            return None;
        }
        if wanted - start < length {
            return (pad != 0).then(|| base.wrapping_add(pad));
        }
    }
    None
}

/// A number in one of the encodings that have a fixed meaning.
fn number(table: &mut EndianSlice<'_, LittleEndian>, encoding: u8) -> Option<u64> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => table.read_u64().ok(),
        0x01 => table.read_uleb128().ok(),
        0x02 => table.read_u16().ok().map(u64::from),
        0x03 => table.read_u32().ok().map(u64::from),
        0x09 => table.read_sleb128().ok().map(|value| value as u64),
        0x0a => table.read_i16().ok().map(|value| value as u64),
        0x0b => table.read_i32().ok().map(|value| value as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_as_compilers_write_it() {
        // No base, no types; numbers of variable length; three calls, of which the second has a pad at 0x90.
        let table = [0xff, 0xff, 0x01, 13, 0x05, 0x10, 0, 0, 0x20, 0x10, 0x90, 0x01, 0, 0x40, 5, 0, 0];
        let pad = |pc| landing_pad(&table, 0x9000, 0x1000, pc);
        assert_eq!(pad(0x1025), Some(0x1090));
        for none in [0x1004, 0x1006, 0x1030, 0x1041, 0xfff, 0x1100] {
            assert_eq!(pad(none), None, "{none:x}");
        }
        for cut in 0..12 {
            assert_eq!(landing_pad(&table[..cut], 0x9000, 0x1000, 0x1025), None, "{cut}");
        }
    }
}
