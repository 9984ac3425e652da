//! Directories of our own, in which nobody but this user and root can put, swap or remove a file.
//!
//! Names come from the environment, and that may be another user's (`sudo -E`, `su`). A directory counts only if every
//! directory on the way to it belongs to root or to this user, and lets nobody else write. `/tmp` and its like, which are
//! root's and sticky, let others write but not touch what is ours.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// What others may do with a directory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Private,
    /// Open files in it whose names they know.
    Search,
}

/// Whether we are root: what is ours is then nobody's home.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The directory at `path`, made where it is missing. What is returned names it without links.
pub fn own_dir(path: &Path, access: Access) -> io::Result<PathBuf> {
    let path = without_links(path)?;
    let names: Vec<&OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = nix::fcntl::open("/", flags, Mode::empty())?;
    check(&fstat(&dir)?, Path::new("/"))?;
    let mut so_far = PathBuf::from("/");
    for name in names {
        so_far.push(name);
        let open = |dir: &OwnedFd| openat(dir, name, flags, Mode::empty());
        let next = match open(&dir) {
            Err(Errno::ENOENT) => {
                match mkdirat(&dir, name, Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                open(&dir)?
            }
            other => other?,
        };
        check(&fstat(&next)?, &so_far)?;
        dir = next;
    }
    check_own(&fstat(&dir)?, &so_far)?;
    if access == Access::Search && fstat(&dir)?.st_mode & 0o011 != 0o011 {
        // By the name that was walked: nobody but us can have changed it.
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&so_far, std::fs::Permissions::from_mode(0o711))?;
    }
    Ok(so_far)
}

/// `path` with the links in that part of it resolved that is there.
fn without_links(path: &Path) -> io::Result<PathBuf> {
    let plain = path.is_absolute() && !path.components().any(|part| matches!(part, Component::ParentDir));
    if !plain {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a full path"));
    }
    for there in path.ancestors() {
        match std::fs::canonicalize(there) {
            Ok(found) => return Ok(found.join(path.strip_prefix(there).unwrap_or(Path::new("")))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// Whether nobody else can swap what is in a directory on the way.
fn check(about: &FileStat, path: &Path) -> io::Result<()> {
    const WRITABLE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let uid = nix::unistd::geteuid().as_raw();
    if about.st_uid != 0 && about.st_uid != uid {
        return Err(refused(path, &format!("belongs to user {}", about.st_uid)));
    }
    if about.st_mode & WRITABLE != 0 && !(about.st_mode & STICKY != 0 && about.st_uid == 0) {
        return Err(refused(path, "can be written by others"));
    }
    Ok(())
}

fn check_own(about: &FileStat, path: &Path) -> io::Result<()> {
    if about.st_uid != nix::unistd::geteuid().as_raw() || about.st_mode & 0o022 != 0 {
        return Err(refused(path, "is not a directory of this user alone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_directory_on_the_way_counts() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let dir = base.join("one/two/own");
        assert_eq!(own_dir(&dir, Access::Private).unwrap(), dir);
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        // Others may write two directories above, which is as good as in it.
        for (mode, fits) in [(0o770, false), (0o707, false), (0o1777, nix::unistd::geteuid().is_root()), (0o755, true)]
        {
            set_mode(&base.join("one"), mode);
            assert_eq!(own_dir(&dir, Access::Private).is_ok(), fits, "{mode:o}");
        }
        set_mode(&dir, 0o770);
        assert!(own_dir(&dir, Access::Private).is_err());
        set_mode(&dir, 0o700);
        own_dir(&dir, Access::Search).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o711);
        // A link leads to what is looked at in its place.
        std::os::unix::fs::symlink(base.join("one"), base.join("link")).unwrap();
        assert_eq!(own_dir(&base.join("link/two/own"), Access::Private).unwrap(), dir);
        set_mode(&base.join("one"), 0o777);
        assert!(own_dir(&base.join("link/two/own"), Access::Private).is_err());
        assert!(own_dir(Path::new("relative"), Access::Private).is_err());
        assert!(own_dir(&base.join("../x"), Access::Private).is_err());
    }

    #[test]
    fn a_directory_below_another_users_is_refused() {
        if !testkit::root() {
            testkit::skip("a_directory_below_another_users_is_refused", "needs root, to make another user's directory");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        fs::create_dir(&home).unwrap();
        own_dir(&home.join(".cache/threadglass"), Access::Private).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), None).unwrap();
        // Its last directory is root's all the same, but the other user can rename it.
        let refusal = own_dir(&home.join(".cache/threadglass"), Access::Private).unwrap_err().to_string();
        assert!(refusal.contains("belongs to user 65534"), "{refusal}");
    }
}
