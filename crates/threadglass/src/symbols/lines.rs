//! Source lines and inlined functions of one object.

use super::NoLocks;
use super::debug_file::find_debug_file;
use super::debug_info::{DebugInfo, FunctionAt, has_debug_info};
use crate::limits::Limits;
use crate::target::Module;
use std::fs::File;

/// The debug information of one object.
pub(crate) struct Lines(DebugInfo);

impl Lines {
    /// Opens the debug information of `module`: in its own file or in a separate one. `None` when it has
    /// none.
    pub(crate) fn open(module: &Module, file: Option<&File>, build_id: Option<&[u8]>, limits: &Limits) -> Option<Self> {
        let separate;
        let file = match file.filter(|file| has_debug_info(file, limits)) {
            Some(file) => file,
            None => {
                separate = find_debug_file(module, file, build_id)?;
                &separate
            }
        };
        DebugInfo::open(file, limits, &NoLocks).map(Self)
    }

    /// The functions at each of the link-time addresses `offsets`, the innermost first.
    pub(crate) fn functions_at(&mut self, offsets: &[u64]) -> Vec<Vec<FunctionAt>> {
        self.0.functions_at(offsets)
    }
}
