//! Who holds the file lock that a process waits for.

use super::processes;
use crate::Pid;
use crate::model::Evidence;

/// A process that holds a file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLockHolder {
    pub(crate) pid: Pid,
    pub(crate) evidence: Evidence,
}

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

/// Who holds what `pid` waits for.
pub(crate) fn lock_holders(pid: Pid) -> Vec<FileLockHolder> {
    let Some(held) = blocking(&std::fs::read_to_string("/proc/locks").unwrap_or_default(), pid) else {
        return Vec::new();
    };
    if held.kind == "POSIX" && held.pid > 0 {
        return vec![FileLockHolder { pid: Pid(held.pid), evidence: Evidence::Recorded }];
    }
    // Of the others that is the process that took the lock: all that have the descriptor hold it.
    let holders: Vec<Pid> = processes().filter(|other| *other != pid && holds(*other, &held.file)).collect();
    let evidence = if holders.len() == 1 { Evidence::Derived } else { Evidence::Inferred };
    holders.into_iter().map(|pid| FileLockHolder { pid, evidence }).collect()
}

/// Whether a descriptor of `pid` holds a lock on `file`.
fn holds(pid: Pid, file: &str) -> bool {
    let dir = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let mut infos = dir.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    infos.any(|info| {
        let mut locks = info.lines().filter_map(|line| parse(line.strip_prefix("lock:")?.trim()));
        locks.any(|lock| !lock.waits && lock.file == file)
    })
}

/// The lock that `pid` waits for.
fn blocking(locks: &str, pid: Pid) -> Option<Line> {
    let lines: Vec<Line> = locks.lines().filter_map(parse).collect();
    let wait = lines.iter().find(|line| line.waits && line.pid == pid.0)?;
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
        let held = blocking(locks, Pid(13)).unwrap();
        assert_eq!((held.number, held.kind.as_str(), held.pid, held.file.as_str()), (2, "FLOCK", 12, "08:01:6"));
        assert_eq!(blocking(locks, Pid(12)), None);
        assert_eq!(parse(""), None);
    }
}
