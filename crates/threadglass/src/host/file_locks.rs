//! Who holds the file lock that a process waits for.

use super::Holders;
use super::descriptors::{OpenFiles, Place, info_of};
use crate::Pid;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

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

/// The file locks of the machine. They are read once, and the holders of each are looked for once: very many threads may wait.
#[derive(Default)]
pub(super) struct FileLocks {
    lines: OnceCell<Vec<Line>>,
    /// By the number of the lock.
    holders: RefCell<HashMap<u64, Holders>>,
}

impl FileLocks {
    /// Who holds the lock on the file behind `descriptor` that a thread of `pid` waits for: `None` if nobody waits any more.
    /// `all` is asked only where a lock does not tell its holder.
    pub(super) fn holders<'a>(
        &self,
        pid: Pid,
        descriptor: i32,
        path: Option<&str>,
        all: impl FnOnce() -> &'a OpenFiles,
    ) -> Option<Holders> {
        let info = info_of((pid, descriptor))?;
        let inode = info.lines().find_map(|line| line.strip_prefix("ino:")).map(str::trim);
        let held = blocking(self.lines.get_or_init(lines), pid, inode)?;
        if held.kind == "POSIX" && held.pid > 0 {
            return Some(Holders::recorded(Pid(held.pid)));
        }
        Some(self.holders.borrow_mut().entry(held.number).or_insert_with(|| of_lock(held, path, all())).clone())
    }
}

fn lines() -> Vec<Line> {
    std::fs::read_to_string("/proc/locks").unwrap_or_default().lines().filter_map(parse).collect()
}

/// Who holds a lock that is no process's: all that have the descriptor. The process that took it may have gone.
fn of_lock(held: &Line, path: Option<&str>, open: &OpenFiles) -> Holders {
    let holds = |place: &&Place| info_of(**place).is_some_and(|info| holds_in(&info, &held.file));
    let mut places: Vec<Place> = path.into_iter().flat_map(|path| open.named(path)).filter(holds).copied().collect();
    if places.is_empty() {
        // In another mount namespace a file may have another name.
        places = open.all_named().filter(holds).copied().collect();
    }
    Holders::of(places, open.is_whole)
}

/// Whether the descriptor with this `fdinfo` holds a lock on `file` that is its own. A POSIX lock is the process's.
fn holds_in(info: &str, file: &str) -> bool {
    let locks = info.lines().filter_map(|line| parse(line.strip_prefix("lock:")?.trim()));
    locks.filter(|lock| !lock.waits && lock.kind != "POSIX").any(|lock| lock.file == file)
}

/// The lock that a thread of `pid` waits for: of the file with this inode, where the kernel tells which that is.
fn blocking<'l>(lines: &'l [Line], pid: Pid, inode: Option<&str>) -> Option<&'l Line> {
    let is_it = |line: &&Line| inode.is_none_or(|inode| line.file.rsplit(':').next() == Some(inode));
    let wait = lines.iter().filter(is_it).find(|line| line.waits && line.pid == pid.0)?;
    lines.iter().find(|line| !line.waits && line.number == wait.number && line.file == wait.file)
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

impl Holders {
    fn recorded(pid: Pid) -> Self {
        Self { places: vec![(pid, None)], is_recorded: true, is_whole: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_the_way() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 08:01:6 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 13 08:01:6 0 EOF\n3: OFDLCK ADVISORY  READ -1 08:01:7 0 EOF\nrubbish\n";
        let locks: Vec<Line> = locks.lines().filter_map(parse).collect();
        let locks = locks.as_slice();
        let held = blocking(locks, Pid(13), Some("6")).unwrap();
        assert_eq!((held.number, held.kind.as_str(), held.pid, held.file.as_str()), (2, "FLOCK", 12, "08:01:6"));
        assert_eq!(blocking(locks, Pid(13), None), Some(held));
        assert_eq!(blocking(locks, Pid(13), Some("5")), None);
        assert_eq!(blocking(locks, Pid(12), None), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn locks_of_a_descriptor() {
        let info = "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 12 08:01:6 0 EOF\nlock:\t1: POSIX  ADVISORY  WRITE 12 08:01:7 0 EOF\n";
        assert!(holds_in(info, "08:01:6"));
        assert!(!holds_in(info, "08:01:7"), "a POSIX lock is none of the descriptor's");
        assert!(!holds_in("pos:\t0\n", "08:01:6"));
    }
}
