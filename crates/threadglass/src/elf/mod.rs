//! ELF objects: as they lie in the target's memory, and as files.

mod by_address;
mod data;
mod demangle;
mod dynamic;
mod file;
mod image;
mod object_file;
mod program_header;

pub use data::DataSymbols;
pub use demangle::demangle;
pub use file::{FileSymbols, build_id_of_file};
pub use image::{Image, ImageError};
pub(crate) use object_file::{HeldBytes, ObjectFile, Section};
pub(crate) use program_header::{PT_LOAD, PT_NOTE, ProgramHeader};

/// A function or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, not demangled.
    pub name: String,
    /// Where it starts: in the target, or at link time, as the function that gives it says.
    pub addr: crate::RemoteAddr,
    /// Its size; 0 when the table does not say.
    pub size: u64,
}

/// Whether a function of `size` bytes at `start` holds `addr`. One without a size holds only its first
/// byte: anything more would be a guess.
fn holds(start: u64, size: u64, addr: u64) -> bool {
    start == addr || (start < addr && addr - start < size)
}

/// The name that begins at `at` of a string table. `None` where there is none, or it has no end.
fn name_at(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    let end = memchr::memchr(0, &rest[..rest.len().min(object_file::MAX_NAME)])?;
    Some(&rest[..end])
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Orders the names of one function: the least is the one that programs use. libc gives its functions
/// several, told apart by underscores.
fn plainness(name: &[u8]) -> (usize, usize, &[u8]) {
    let underscores = name.iter().take_while(|b| **b == b'_').count();
    (underscores, name.len(), name)
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn an_address_past_a_functions_end_is_not_given_its_name() {
        assert!(holds(100, 10, 100) && holds(100, 10, 109));
        assert!(!holds(100, 10, 110) && !holds(100, 10, 99));
        assert!(holds(200, 0, 200) && !holds(200, 0, 201));
    }
}
