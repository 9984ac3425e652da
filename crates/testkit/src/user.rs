//! Running things as somebody else.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A user with no rights and no files.
pub const NOBODY: u32 = 65534;
/// Another one.
pub const STRANGER: u32 = 65533;

/// A directory that every user can read, for copies of programs: the build directory may lie where
/// others cannot go.
#[derive(Debug)]
pub struct Public {
    dir: TempDir,
}

impl Public {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        open_to(dir.path(), 0o755);
        Self { dir }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Copies a program (or library) into it, under another name.
    pub fn copy(&self, file: &Path, name: impl AsRef<OsStr>) -> PathBuf {
        let copy = self.dir.path().join(Path::new(name.as_ref()));
        std::fs::copy(file, &copy).expect("a copy of a built file");
        open_to(&copy, 0o755);
        copy
    }

    /// A directory in it that every user can write to.
    pub fn writable(&self) -> PathBuf {
        let dir = self.dir.path().join("writable");
        std::fs::create_dir_all(&dir).expect("a directory of our own");
        open_to(&dir, 0o777);
        dir
    }
}

fn open_to(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a file of our own");
}

/// A command that runs `program` as a user without privileges. Needs root and setpriv.
pub fn as_user(uid: u32, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}")).args(["--clear-groups", "--"]).arg(program);
    command
}
