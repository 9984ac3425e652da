//! Who holds the file lock that a process waits for.

use super::{Holders, of_all_descriptors};
use crate::Pid;
use crate::limits::Limits;
use crate::model::Evidence;

/// One line of `/proc/locks`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: u64,
    waits: bool,
    /// `FLOCK`, `POSIX`, `OFDLCK`.
    kind: String,
    pid: i32,
    /// Device and inode.
    file: String,
}

/// The locks that the descriptors of all processes hold.
pub(super) struct FileLocks {
    held: Vec<(Pid, String)>,
    is_whole: bool,
}

impl FileLocks {
    pub(super) fn read(limits: &Limits) -> Self {
        let (found, is_whole) = of_all_descriptors(limits, "fdinfo", |pid, entry| {
            let info = std::fs::read_to_string(entry.path()).ok()?;
            let locks = info.lines().filter_map(|line| parse(line.strip_prefix("lock:")?.trim()));
            let files: Vec<_> = locks.filter(|lock| !lock.waits).map(|lock| (pid, lock.file)).collect();
            (!files.is_empty()).then_some(files)
        });
        Self { held: found.into_iter().flatten().collect(), is_whole }
    }
}

/// Who holds the lock on the file behind `descriptor` that a thread of `pid` waits for: `None` if nobody waits any more. `all`
/// is asked only where a lock does not tell its holder.
pub(super) fn holders<'a>(pid: Pid, descriptor: i32, all: impl FnOnce() -> &'a FileLocks) -> Option<Holders> {
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let inode = info.lines().find_map(|line| line.strip_prefix("ino:")).map(str::trim);
    let held = blocking(&std::fs::read_to_string("/proc/locks").ok()?, pid, inode)?;
    if held.kind == "POSIX" && held.pid > 0 {
        return Some(Holders { pids: vec![(Pid(held.pid), Evidence::Recorded)], is_whole: true });
    }
    // Of the others that is the process that took the lock: all that have the descriptor hold it.
    let all = all();
    let holders = all.held.iter().filter(|(_, file)| *file == held.file).map(|(pid, _)| *pid);
    Some(Holders::others(pid, holders.collect(), all.is_whole))
}

/// The lock that a thread of `pid` waits for: of the file with this inode, where the kernel tells which that is.
fn blocking(locks: &str, pid: Pid, inode: Option<&str>) -> Option<Line> {
    let lines: Vec<Line> = locks.lines().filter_map(parse).collect();
    let is_it = |line: &&Line| inode.is_none_or(|inode| line.file.rsplit(':').next() == Some(inode));
    let wait = lines.iter().filter(is_it).find(|line| line.waits && line.pid == pid.0)?;
    lines.iter().find(|line| !line.waits && line.number == wait.number && line.file == wait.file).cloned()
}

/// `1: -> FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.strip_suffix(':')?.parse().ok()?;
    let mut kind = words.next()?;
    let waits = kind == "->";
    if waits {
        kind = words.next()?;
    }
    let (_, _, pid, file) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Line { number, waits, kind: kind.to_owned(), pid: pid.parse().ok()?, file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_the_way() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 08:01:6 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 13 08:01:6 0 EOF\n3: OFDLCK ADVISORY  READ -1 08:01:7 0 EOF\nrubbish\n";
        let held = blocking(locks, Pid(13), Some("6")).unwrap();
        assert_eq!((held.number, held.kind.as_str(), held.pid, held.file.as_str()), (2, "FLOCK", 12, "08:01:6"));
        assert_eq!(blocking(locks, Pid(13), None).as_ref(), Some(&held));
        assert_eq!(blocking(locks, Pid(13), Some("5")), None);
        assert_eq!(blocking(locks, Pid(12), None), None);
        assert_eq!(parse(""), None);
    }
}
