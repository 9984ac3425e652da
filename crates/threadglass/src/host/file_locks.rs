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
    /// [`OF_FLOCK`], [`OF_PROCESS`], [`OF_DESCRIPTOR`], or another word.
    kind: String,
    is_write: bool,
    pid: i32,
    /// Device and inode.
    file: String,
    range: ByteRange,
}

/// The kernel's words for locks of `flock`, of a process, and of a descriptor.
pub(crate) const OF_FLOCK: &str = "FLOCK";
pub(crate) const OF_PROCESS: &str = "POSIX";
pub(crate) const OF_DESCRIPTOR: &str = "OFDLCK";

/// The bytes of a file that a lock is of: the first and the last.
pub(crate) type ByteRange = (u64, u64);

/// What is known of a wait for a file lock, by the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedLock {
    /// The descriptor of the file.
    pub(crate) descriptor: i32,
    /// The kernel's word for the kind of lock.
    pub(crate) kind: &'static str,
    /// Where the call tells that.
    pub(crate) range: Option<ByteRange>,
}

/// The file locks of the machine. They are read once, and the holders of each are looked for once: very many threads may wait.
#[derive(Default)]
pub(super) struct FileLocks {
    lines: OnceCell<Vec<Line>>,
    /// By the number of the lock, and the bytes that are waited for.
    holders: RefCell<HashMap<(u64, ByteRange), Holders>>,
}

impl FileLocks {
    /// Who holds the lock that a thread of `pid` waits for: `None` if nobody waits any more, or it is not known which of several
    /// locks it is. `all` is asked only where a lock does not tell its holder.
    pub(super) fn holders<'a>(
        &self,
        pid: Pid,
        wanted: WantedLock,
        path: Option<&str>,
        all: impl FnOnce() -> &'a OpenFiles,
    ) -> Option<Holders> {
        let info = info_of((pid, wanted.descriptor))?;
        let inode = info.lines().find_map(|line| line.strip_prefix("ino:")).map(str::trim);
        let (wait, held) = blocking(self.lines.get_or_init(lines), pid, wanted, inode)?;
        if held.kind == OF_PROCESS && held.pid > 0 {
            return Some(Holders::recorded(Pid(held.pid)));
        }
        let mut known = self.holders.borrow_mut();
        let holders = known.entry((held.number, wait.range)).or_insert_with(|| of_lock(wait, held, path, all()));
        Some(holders.clone())
    }
}

fn lines() -> Vec<Line> {
    std::fs::read_to_string("/proc/locks").unwrap_or_default().lines().filter_map(parse).collect()
}

/// Who holds a lock that is no process's: all that have the descriptor. The process that took it may have gone.
fn of_lock(wait: &Line, held: &Line, path: Option<&str>, open: &OpenFiles) -> Holders {
    let holds = |place: &&Place| info_of(**place).is_some_and(|info| holds_in(&info, wait, held));
    let mut places: Vec<Place> = path.into_iter().flat_map(|path| open.named(path)).filter(holds).copied().collect();
    if places.is_empty() {
        // In another mount namespace a file may have another name.
        places = open.all_named().filter(holds).copied().collect();
    }
    Holders::of(places, open.is_whole)
}

/// Whether the descriptor with this `fdinfo` holds a lock of the kind of `held` that is in the way of `wait`.
fn holds_in(info: &str, wait: &Line, held: &Line) -> bool {
    let locks = info.lines().filter_map(|line| parse(line.strip_prefix("lock:")?.trim()));
    locks.filter(|lock| !lock.waits && lock.kind == held.kind).any(|lock| is_in_the_way(&lock, wait))
}

fn is_in_the_way(lock: &Line, wait: &Line) -> bool {
    let overlaps = lock.range.0 <= wait.range.1 && wait.range.0 <= lock.range.1;
    lock.file == wait.file && overlaps && (lock.is_write || wait.is_write)
}

/// The line of a thread of `pid` that waits for the `wanted` lock, and that of the lock in its way: of the file with this inode,
/// where the kernel tells which that is.
fn blocking<'l>(lines: &'l [Line], pid: Pid, wanted: WantedLock, inode: Option<&str>) -> Option<(&'l Line, &'l Line)> {
    let is_it = |line: &&Line| inode.is_none_or(|inode| line.file.rsplit(':').next() == Some(inode));
    // Of a lock that is to be the descriptor's the kernel does not tell which process waits.
    let is_its = |line: &&Line| line.kind == wanted.kind && (line.pid == pid.0 || line.kind == OF_DESCRIPTOR);
    let waits: Vec<&Line> = lines.iter().filter(|line| line.waits).filter(is_it).filter(is_its).collect();
    let of_range: Vec<&Line> = waits.iter().filter(|line| Some(line.range) == wanted.range).copied().collect();
    let waits = if of_range.is_empty() { waits } else { of_range };
    let wait = *waits.first()?;
    // Of several that wait for different locks it is not known which one is the thread.
    if waits.iter().any(|other| (other.number, &other.file) != (wait.number, &wait.file)) {
        return None;
    }
    let held = lines.iter().find(|line| !line.waits && line.number == wait.number && line.file == wait.file)?;
    Some((wait, held))
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
    let (_, mode, pid, file) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (from, to) = (words.next()?.parse().ok()?, words.next()?);
    let to = if to == "EOF" { u64::MAX } else { to.parse().ok()? };
    Some(Line {
        number,
        waits,
        kind: kind.to_owned(),
        is_write: mode == "WRITE",
        pid: pid.parse().ok()?,
        file: file.to_owned(),
        range: (from, to),
    })
}

impl Holders {
    fn recorded(pid: Pid) -> Self {
        Self { places: vec![(pid, None)], is_recorded: true, is_whole: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Line> {
        text.lines().filter_map(parse).collect()
    }

    #[test]
    fn who_is_in_the_way_of_a_lock() {
        let locks = parsed(
            "1: POSIX  ADVISORY  WRITE 11 08:01:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 08:01:6 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 13 08:01:6 0 EOF\n3: OFDLCK ADVISORY  READ -1 08:01:7 0 EOF\nrubbish\n",
        );
        let any = WantedLock { descriptor: 3, kind: OF_FLOCK, range: None };
        let (_, held) = blocking(&locks, Pid(13), any, Some("6")).unwrap();
        assert_eq!((held.number, held.kind.as_str(), held.pid, held.file.as_str()), (2, "FLOCK", 12, "08:01:6"));
        assert_eq!(blocking(&locks, Pid(13), any, None).map(|(_, held)| held), Some(held));
        assert_eq!(blocking(&locks, Pid(13), any, Some("5")), None);
        assert_eq!(blocking(&locks, Pid(12), any, None), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_wait_whose_process_the_kernel_does_not_tell() {
        let locks = parsed(
            "1: OFDLCK ADVISORY  WRITE -1 08:01:7 0 9\n1: -> OFDLCK ADVISORY  WRITE -1 08:01:7 0 9\n\
            2: OFDLCK ADVISORY  WRITE -1 08:01:7 100 109\n2:  -> OFDLCK ADVISORY  READ -1 08:01:7 100 104\n",
        );
        let wanted = |range| WantedLock { descriptor: 3, kind: OF_DESCRIPTOR, range };
        let number = |range| blocking(&locks, Pid(13), wanted(range), Some("7")).map(|(_, held)| held.number);
        assert_eq!(number(Some((0, 9))), Some(1));
        assert_eq!(number(Some((100, 104))), Some(2));
        assert_eq!(number(None), None, "either of the two may be the one");
    }

    #[test]
    fn locks_of_a_descriptor() {
        let info = "pos:\t0\nlock:\t1: OFDLCK ADVISORY  READ -1 08:01:6 10 19\nlock:\t1: POSIX  ADVISORY  WRITE 12 08:01:6 0 EOF\n";
        let line = |text| parse(text).unwrap();
        let held = line("1: OFDLCK ADVISORY  READ -1 08:01:6 10 19");
        let holds = |wait| holds_in(info, &line(wait), &held);
        assert!(holds("1: -> OFDLCK ADVISORY  WRITE -1 08:01:6 0 EOF"));
        assert!(!holds("1: -> OFDLCK ADVISORY  READ -1 08:01:6 0 EOF"), "readers share");
        assert!(!holds("1: -> OFDLCK ADVISORY  WRITE -1 08:01:6 20 29"), "other bytes");
        assert!(!holds("1: -> OFDLCK ADVISORY  WRITE -1 08:01:7 0 EOF"), "another file");
        assert!(!holds_in("pos:\t0\n", &held, &held));
    }
}
