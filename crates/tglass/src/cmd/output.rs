//! Files that a command is asked to write.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that will be written in the end. It is opened at once, so that what cannot be written is said before
/// any work is done; what is there already stays until then.
pub struct Output {
    path: PathBuf,
    file: File,
    /// Whether nothing was there, so that nothing is to stay if nothing is written.
    is_new: bool,
}

impl Output {
    /// Opens `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    /// Opens the file, if one is wanted.
    pub fn open_wanted(path: Option<&PathBuf>) -> Result<Option<Self>> {
        path.map(|path| Self::open(path)).transpose()
    }

    /// How it is called.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes all of it, in place of what was there.
    pub fn write(mut self, bytes: &[u8]) -> Result<()> {
        self.is_new = false;
        let is_file = self.file.metadata().is_ok_and(|meta| meta.is_file());
        let mut write = || {
            if is_file {
                self.file.set_len(0)?;
            }
            self.file.write_all(bytes)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
