//! ELF objects: as they lie in the target's memory, and as files.

mod file;
mod image;

pub use file::{FileSymbols, build_id_of_file};
pub use image::{Image, ImageError};

/// One function or data symbol, with its run-time address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, not demangled.
    pub name: String,
    /// Where it starts in the target.
    pub addr: crate::RemoteAddr,
    /// Its size; 0 when the table does not say.
    pub size: u64,
}
