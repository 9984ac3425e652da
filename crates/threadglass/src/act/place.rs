//! Putting the agent where a program can load it and nobody but this user can change it.
//!
//! It must be a file with a lasting name: programs that the program starts load it too, by the same variable of the
//! environment, when descriptors of ours have long been closed.

use crate::own_dir::{Access, known_as, own_dir};
use crate::table::FILE_NAME;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why there is no place for the agent.
#[derive(Debug, thiserror::Error)]
#[error("no directory for the agent: {} (a directory below which only this user can write and from which programs may be loaded is needed: root uses /run, /var/cache or /tmp, others XDG_RUNTIME_DIR, XDG_CACHE_HOME, HOME, /tmp or /var/tmp)", .0.join("; "))]
pub struct NoPlace(Vec<String>);

/// The agent's file, written if it is not there already.
pub fn place() -> Result<PathBuf, NoPlace> {
    let uid = nix::unistd::geteuid().as_raw();
    let mut reasons = Vec::new();
    for dir in candidates(uid, |name| std::env::var_os(name)) {
        match in_dir(&dir, uid, agent::AGENT) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push(format!("{}: {error}", dir.display())),
        }
    }
    Err(NoPlace(reasons))
}

/// Where to try. Root asks nobody's variables: they may still be those of the user who became root.
fn candidates(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let in_tmp = PathBuf::from(format!("/tmp/threadglass-{}", known_as()));
    if uid == 0 {
        return vec!["/run/threadglass".into(), "/var/cache/threadglass".into(), in_tmp];
    }
    let variable = |name: &str| variable(name).map(PathBuf::from).filter(|value| value.is_absolute());
    let places = [
        variable("XDG_RUNTIME_DIR").map(|dir| dir.join("threadglass")),
        variable("XDG_CACHE_HOME").map(|dir| dir.join("threadglass")),
        variable("HOME").map(|dir| dir.join(".cache/threadglass")),
        Some(in_tmp),
        Some(PathBuf::from(format!("/var/tmp/threadglass-{}", known_as()))),
    ];
    places.into_iter().flatten().collect()
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn in_dir(dir: &Path, uid: u32, bytes: &[u8]) -> io::Result<PathBuf> {
    // What root starts may go on as another user, and load the agent again in what it starts itself.
    let dir = own_dir(dir, if uid == 0 { Access::Search } else { Access::Private })?;
    // Colons and spaces separate the names in LD_PRELOAD.
    if dir.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        return Err(refused("a name with a colon or space cannot be preloaded"));
    }
    let flags = nix::sys::statvfs::statvfs(&dir)?.flags();
    if flags.contains(nix::sys::statvfs::FsFlags::ST_NOEXEC) {
        return Err(refused("programs may not be loaded from there (noexec)"));
    }
    let mut hash = DefaultHasher::new();
    bytes.hash(&mut hash);
    let path = dir.join(format!("lib{FILE_NAME}-{:016x}.so", hash.finish()));
    if !is_there(&path, uid, bytes) {
        write(&dir, &path, bytes)?;
    }
    Ok(path)
}

fn is_there(path: &Path, uid: u32, bytes: &[u8]) -> bool {
    let read = || -> io::Result<bool> {
        let about = fs::symlink_metadata(path)?;
        if !about.is_file() || about.uid() != uid || about.mode() & 0o022 != 0 || about.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let mut found = Vec::new();
        File::open(path)?.take(bytes.len() as u64 + 1).read_to_end(&mut found)?;
        Ok(found == bytes)
    };
    read().unwrap_or(false)
}

/// Under another name first: a program may be loading the file this very moment.
fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = dir.join(format!(".{}.partial", std::process::id()));
    let _ = fs::remove_file(&partial);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o555).open(&partial)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// What a program's environment must have for it to be tracked: names and values. `exact` times every hold, `off`
/// loads the agent without switching it on, `size` is the number of objects there is to be room for.
pub fn environment(agent: &Path, exact: bool, off: bool, size: Option<u64>) -> [(&'static str, OsString); 2] {
    let mut preload = agent.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        // What the user has preloaded himself is asked first, as it was before.
        preload = others;
        preload.push(OsStr::new(":"));
        preload.push(agent);
    }
    let size = size.map(|size| format!("size={size}"));
    let words = [off.then_some("off"), exact.then_some("exact"), size.as_deref()];
    let words: Vec<_> = words.into_iter().flatten().collect();
    [("LD_PRELOAD", preload), (agent::VARIABLE, words.join(",").into())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_could_change_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let dir = base.path().join("agent");
        let path = in_dir(&dir, uid, b"first").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o555 & !umask());
        // The same again, and with other contents under the same name.
        assert_eq!(in_dir(&dir, uid, b"first").unwrap(), path);
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"wrong").unwrap();
        in_dir(&dir, uid, b"first").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        // Not where others may write: in it, or above it.
        for above in [&dir, base.path()] {
            fs::set_permissions(above, fs::Permissions::from_mode(0o770)).unwrap();
            assert!(in_dir(&dir, uid, b"first").is_err());
            fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
        }
        assert!(in_dir(&base.path().join("a b"), uid, b"first").is_err());
    }

    #[test]
    fn root_asks_no_variables() {
        let variable = |name: &str| Some(OsString::from(format!("/home/other/{name}")));
        let other = |dir: &PathBuf| dir.starts_with("/home/other");
        assert!(!candidates(0, variable).iter().any(other));
        assert_eq!(candidates(1000, variable).iter().filter(|dir| other(dir)).count(), 3);
    }

    fn umask() -> u32 {
        use nix::sys::stat::{Mode, umask};
        let now = umask(Mode::empty());
        umask(now);
        now.bits()
    }
}
