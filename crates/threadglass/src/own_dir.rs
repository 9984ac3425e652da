//! Directories of our own, in which nobody but this user and root can put, swap or remove a file.
//!
//! Names come from the environment, and that may be another user's (`sudo -E`, `su`). A directory counts only if every
//! directory on the way to it belongs to root or to this user, and lets nobody else write. `/tmp` and its like, which are
//! root's and sticky, let others write but not touch what is ours.
//!
//! In a user namespace that does not know root, what is root's belongs to nobody, and so does what is anybody else's. There
//! the few directories count that every system has and only root makes; and a user without a name owns nothing for certain.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
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

/// Our number for names in directories that others write, too: in a user namespace the one by which we are known outside,
/// since there may be another user of our number.
pub(crate) fn known_as() -> u32 {
    let uid = nix::unistd::geteuid().as_raw();
    outside(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default(), uid).unwrap_or(uid)
}

/// The directory at `path`, made where it is missing. What is returned names it without links.
pub fn own_dir(path: &Path, access: Access) -> io::Result<PathBuf> {
    let path = without_links(path)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = nix::fcntl::open("/", flags, Mode::empty())?;
    let users = Users::here();
    check(&fstat(&dir)?, Path::new("/"), &users)?;
    let mut so_far = PathBuf::from("/");
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
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
        check(&fstat(&next)?, &so_far, &users)?;
        dir = next;
    }
    check_own(&fstat(&dir)?, &so_far, &users)?;
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an absolute path"));
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

/// The users that this namespace knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Users {
    /// Who we are.
    me: u32,
    /// The number that stands for all users that the namespace does not know; `None` if it knows all.
    strangers: Option<u32>,
}

impl Users {
    fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let strangers = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok());
        let map = read("/proc/self/uid_map").unwrap_or_default();
        // Where there is no map to be read, there are no namespaces.
        let strangers = strangers.filter(|uid| !map.is_empty() && outside(&map, *uid).is_none());
        Self { me: nix::unistd::geteuid().as_raw(), strangers }
    }

    fn is_mine(&self, owner: u32) -> bool {
        owner == self.me && self.strangers != Some(owner)
    }

    /// Whether it is root's, or as good as that.
    fn is_roots(&self, owner: u32, path: &Path) -> bool {
        const OF_THE_SYSTEM: [&str; 6] = ["/", "/run", "/tmp", "/var", "/var/cache", "/var/tmp"];
        owner == 0 || self.strangers == Some(owner) && OF_THE_SYSTEM.iter().any(|one| path == Path::new(one))
    }
}

/// The number outside of its namespace of a user that a `uid_map` has in it.
fn outside(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u32>().ok());
        let (first, outside, count) = (words.next()??, words.next()??, words.next()??);
        let offset = uid.checked_sub(first).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// Whether nobody else can swap what is in a directory on the way.
fn check(about: &FileStat, path: &Path, users: &Users) -> io::Result<()> {
    const WRITABLE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let is_roots = users.is_roots(about.st_uid, path);
    if !is_roots && !users.is_mine(about.st_uid) {
        return Err(refused(path, &format!("belongs to user {}", about.st_uid)));
    }
    if about.st_mode & WRITABLE != 0 && !(about.st_mode & STICKY != 0 && is_roots) {
        return Err(refused(path, "can be written by others"));
    }
    Ok(())
}

fn check_own(about: &FileStat, path: &Path, users: &Users) -> io::Result<()> {
    if !users.is_mine(about.st_uid) || about.st_mode & 0o022 != 0 {
        return Err(refused(path, "is not a directory that only this user can write"));
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
    fn strangers_of_a_namespace_are_root_only_where_the_system_begins() {
        assert_eq!(outside("         0          0 4294967295\n", 65534), Some(65534));
        assert_eq!(outside("         0       1000          1\n", 65534), None);
        assert_eq!(outside("0 1000 1\n65530 100000 8\n", 65534), Some(100_004));
        assert_eq!(outside("", 65534), None);
        let all = Users { me: 7, strangers: None };
        let some = Users { me: 7, strangers: Some(65534) };
        let none = Users { me: 65534, strangers: Some(65534) };
        let about = |uid, mode| {
            let mut about = fstat(std::io::stdin()).unwrap();
            (about.st_uid, about.st_mode) = (uid, mode);
            about
        };
        let fits = |users: &Users, uid, mode, path| check(&about(uid, mode), Path::new(path), users).is_ok();
        for users in [&some, &none] {
            assert!(fits(users, 65534, 0o755, "/") && fits(users, 65534, 0o1777, "/tmp"));
            assert!(!fits(users, 65534, 0o777, "/tmp") && !fits(users, 65534, 0o755, "/home/other"));
        }
        assert!(
            !fits(&all, 65534, 0o755, "/") && fits(&all, 7, 0o755, "/home/me") && fits(&some, 7, 0o755, "/home/me")
        );
        // What belongs to a stranger may be anybody's.
        assert!(check_own(&about(7, 0o700), Path::new("/tmp/x"), &some).is_ok());
        assert!(check_own(&about(65534, 0o700), Path::new("/tmp/x"), &none).is_err());
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
