//! The files that a process had mapped as code: whose names its stacks have.

use crate::RemoteAddr;
use crate::elf::Image;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// Files that are listed.
const MOST: usize = 4096;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MappedFile {
    pub(super) path: String,
    pub(super) base: RemoteAddr,
    pub(super) end: RemoteAddr,
    /// Its build id, in hexadecimal digits.
    pub(super) build_id: Option<String>,
}

pub(super) fn list(target: &dyn Target) -> Vec<MappedFile> {
    let of = |module: &crate::target::Module| {
        // What is no object (a font, a database) is left out.
        let image = Image::load(target, module.base).ok()?;
        let digits = |id: Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(MappedFile {
            path: String::from_utf8_lossy(&module.path).into_owned(),
            base: module.base,
            end: module.end,
            build_id: image.build_id(target).map(digits),
        })
    };
    target.modules().iter().take(MOST).filter_map(of).collect()
}
