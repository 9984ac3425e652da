//! Files that a process wrote for those who look at it.

use super::Live;
use crate::proc::MapEntry;
use crate::sys::file;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl Live {
    /// The file `path` as the process sees it, if it belongs to the user of the process. Anybody may have put one of
    /// that name, or a link, into a directory like `/tmp`: those are not believed.
    pub(crate) fn open_own_file(&self, path: &[u8]) -> Option<File> {
        let root = file::open_dir(Path::new(&format!("/proc/{}/root", self.witness))).ok()?;
        // Of the process that is meant: the number may have another owner by now.
        self.check_identity().ok()?;
        let file = file::open_unlinked_below(&root, path).ok()?;
        let about = file.metadata().ok()?;
        (Some(about.uid()) == self.leader_status().euid() && about.nlink() == 1).then_some(file)
    }

    /// The file of a mapping, under the same condition.
    pub(crate) fn open_own_mapping(&self, map: &MapEntry) -> Option<File> {
        let file = self.open_own_file(&map.name)?;
        (file.metadata().ok()?.ino() == map.inode).then_some(file)
    }

    /// Its pid as it knows it.
    pub(crate) fn inner_pid(&self) -> i32 {
        self.leader_status().inner_tid.map_or(self.pid.0, |inner| inner.0)
    }
}
