//! Which processes have a pipe, a socket or a named file open.

use super::terminals::TerminalSide;
use super::{of_living, processes};
use crate::Pid;
use crate::limits::Limits;
use crate::sys::file::{self, FileBehind};
use nix::errno::Errno;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// Descriptors that are kept.
const MAX_ENTRIES: usize = 1 << 20;
/// Files that everybody has open, and which nobody waits for.
const OF_ALL: [&[u8]; 4] = [b"/dev/null", b"/dev/zero", b"/dev/urandom", b"/dev/random"];

/// What the link of each eventfd says.
pub(super) const EVENTFD: &str = "anon_inode:[eventfd]";

/// A descriptor of a process.
pub(crate) type Place = (Pid, i32);

/// A descriptor that leads to a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenEnd {
    pub(crate) place: Place,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// The descriptors of all processes that lead to pipes, sockets and named files.
#[derive(Default)]
pub(super) struct OpenFiles {
    pipes: ByInode,
    sockets: ByInode,
    /// By the last part of the path: in another mount namespace the rest of it may be another one.
    named: HashMap<Box<[u8]>, Vec<Place>>,
    eventfds: Vec<Place>,
    /// The eventfds by their number, once one was asked for.
    by_eventfd: OnceCell<HashMap<u64, Vec<Place>>>,
    /// The sides of those that have made terminals, once one was asked for.
    masters: OnceCell<Vec<(TerminalSide, Place)>>,
    /// Whether all processes of the machine could be looked into.
    pub(super) is_whole: bool,
}

/// Descriptors by the inode that they lead to. There are very many, and few are ever asked for.
#[derive(Default)]
struct ByInode(Vec<(u64, Place)>);

impl ByInode {
    fn at(&self, inode: u64) -> impl Iterator<Item = Place> {
        let from = self.0.partition_point(|(other, _)| *other < inode);
        self.0[from..].iter().take_while(move |(other, _)| *other == inode).map(|(_, place)| *place)
    }
}

impl OpenFiles {
    pub(super) fn read(limits: &Limits) -> Self {
        let mut open = Self { is_whole: sees_all_processes(), ..Self::default() };
        open.is_whole &= open.read_all(limits);
        open.pipes.0.sort_unstable();
        open.sockets.0.sort_unstable();
        open
    }

    /// Whether all processes could be looked into.
    fn read_all(&mut self, limits: &Limits) -> bool {
        let (mut buffer, mut numbers, mut entries, mut is_whole) = ([0; 4096], Vec::new(), 0, true);
        for pid in processes() {
            let dir = match file::open_dir(format!("/proc/{pid}/fd").as_ref()) {
                Ok(dir) => dir,
                // One that has ended meanwhile has nothing open.
                Err(Errno::ENOENT | Errno::ESRCH) => continue,
                Err(_) => {
                    is_whole = false;
                    continue;
                }
            };
            numbers.clear();
            // One that ends meanwhile has nothing open.
            if file::read_numbers(&dir, &mut numbers).is_err() {
                continue;
            }
            let dir = if numbers.is_empty() { of_other_threads(pid, &mut numbers).unwrap_or(dir) } else { dir };
            entries += numbers.len();
            if limits.is_over() || entries > MAX_ENTRIES {
                return false;
            }
            for number in &numbers {
                if let Some(link) = file::read_number_link(&dir, *number, &mut buffer) {
                    self.add(link, (pid, *number));
                }
            }
        }
        is_whole
    }

    fn add(&mut self, link: &[u8], place: Place) {
        let inode = |prefix: &[u8]| {
            let number = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
            std::str::from_utf8(number).ok()?.parse::<u64>().ok()
        };
        if let Some(inode) = inode(b"socket:[") {
            self.sockets.0.push((inode, place));
        } else if let Some(inode) = inode(b"pipe:[") {
            self.pipes.0.push((inode, place));
        } else if link == EVENTFD.as_bytes() {
            self.eventfds.push(place);
        } else if link.starts_with(b"/") && !OF_ALL.contains(&link) {
            let name = last_part(link);
            match self.named.get_mut(name) {
                Some(places) => places.push(place),
                None => drop(self.named.insert(name.into(), vec![place])),
            }
        }
    }

    /// Who has the socket open.
    pub(super) fn at_socket(&self, inode: u64) -> impl Iterator<Item = Place> {
        self.sockets.at(inode)
    }

    /// Who has a file of this name open.
    pub(super) fn named(&self, path: &str) -> &[Place] {
        self.named.get(last_part(path.as_bytes())).map_or(&[], Vec::as_slice)
    }

    /// Who has the eventfd with this number open.
    pub(super) fn at_eventfd(&self, number: u64) -> &[Place] {
        let by_number = self.by_eventfd.get_or_init(|| {
            let mut found: HashMap<u64, Vec<Place>> = HashMap::new();
            for place in &self.eventfds {
                if let Some(number) = info_of(*place).as_deref().and_then(eventfd_in) {
                    found.entry(number).or_default().push(*place);
                }
            }
            found
        });
        by_number.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Who has the side of a terminal that its maker has.
    pub(super) fn masters(&self) -> &[(TerminalSide, Place)] {
        let side = |place: &Place| Some((TerminalSide::at(*place)?, *place));
        self.masters.get_or_init(|| self.named("/dev/ptmx").iter().filter_map(side).collect())
    }

    /// All that lead to named files.
    pub(super) fn all_named(&self) -> impl Iterator<Item = &Place> {
        self.named.values().flatten()
    }

    /// All that lead to sockets.
    pub(super) fn all_sockets(&self) -> impl Iterator<Item = &Place> {
        self.sockets.0.iter().map(|(_, place)| place)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.pipes.0.len()
            + self.sockets.0.len()
            + self.named.values().map(Vec::len).sum::<usize>()
            + self.eventfds.len()
    }

    /// The ends of a pipe that are open: of `pipe:[123]`, or of the FIFO with a path that `place` leads to.
    pub(super) fn ends_of_pipe(&self, link: &str, place: Place) -> Vec<OpenEnd> {
        match link.strip_prefix("pipe:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok()) {
            Some(inode) => self.pipes.at(inode).filter_map(end).collect(),
            None => {
                let Some(fifo) = fifo_at(place) else { return Vec::new() };
                let is_it = |place: &&Place| fifo_at(**place) == Some(fifo);
                self.named(link).iter().filter(is_it).filter_map(|place| end(*place)).collect()
            }
        }
    }
}

/// The descriptors of a process whose main thread has none: it may have ended before the others.
fn of_other_threads(pid: Pid, numbers: &mut Vec<i32>) -> Option<OwnedFd> {
    let (dir, found) = of_living(pid, |task| {
        let dir = file::open_dir(format!("{task}/fd").as_ref()).ok()?;
        let mut found = Vec::new();
        file::read_numbers(&dir, &mut found).ok().filter(|()| !found.is_empty())?;
        Some((dir, found))
    })?;
    *numbers = found;
    Some(dir)
}

/// The last part of a path; a file that was removed is the same one.
fn last_part(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The FIFO that a descriptor leads to, if it is one.
fn fifo_at(place: Place) -> Option<FileBehind> {
    file_at(place).filter(FileBehind::is_fifo)
}

/// What a descriptor leads to.
pub(super) fn file_at((pid, number): Place) -> Option<FileBehind> {
    of_living(pid, |task| file::file_behind(&format!("{task}/fd/{number}")))
}

/// What the kernel tells of a descriptor.
pub(super) fn info_of((pid, number): Place) -> Option<String> {
    of_living(pid, |task| {
        let path = std::ffi::CString::new(format!("{task}/fdinfo/{number}")).ok()?;
        String::from_utf8(file::read_stream(nix::fcntl::AT_FDCWD, &path).ok()?).ok()
    })
}

pub(super) fn end(place: Place) -> Option<OpenEnd> {
    let access = access_in(&info_of(place)?)?;
    Some(OpenEnd { place, reads: access != libc::O_WRONLY, writes: access != libc::O_RDONLY })
}

/// The number of an eventfd, by its `fdinfo`: each has another one on the whole machine.
pub(super) fn eventfd_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok())
}

/// How a descriptor was opened, by its `fdinfo`.
fn access_in(info: &str) -> Option<i32> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE)
}

/// Whether our `/proc` is that of the first pid namespace, in which all processes are.
fn sees_all_processes() -> bool {
    /// The number that the kernel gives that namespace.
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn me() -> Pid {
        Pid(std::process::id() as i32)
    }

    fn own_ends(link: &str, number: i32) -> Vec<OpenEnd> {
        let ends = OpenFiles::read(&Limits::default()).ends_of_pipe(link, (me(), number));
        ends.into_iter().filter(|end| end.place.0 == me()).collect()
    }

    #[test]
    fn the_ends_of_a_pipe_of_ours() {
        let (reader, writer) = std::io::pipe().unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
        let ends = own_ends(link.to_str().unwrap(), reader.as_raw_fd());
        let end = |number, reads| OpenEnd { place: (me(), number), reads, writes: !reads };
        assert!(ends.contains(&end(reader.as_raw_fd(), true)), "{ends:?}");
        assert!(ends.contains(&end(writer.as_raw_fd(), false)), "{ends:?}");
        assert_eq!(access_in("pos:\t0\nflags:\t0100002\nmnt_id:\t9\n"), Some(libc::O_RDWR));
        assert_eq!(access_in("pos:\t0\n"), None);
    }

    #[test]
    fn the_ends_of_a_fifo_and_no_other_file_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let both = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        let decoy = std::fs::File::create(dir.path().join("other/queue")).unwrap();
        let ends = own_ends(path.to_str().unwrap(), both.as_raw_fd());
        assert_eq!(ends, [OpenEnd { place: (me(), both.as_raw_fd()), reads: true, writes: true }]);
        assert_eq!(fifo_at((me(), decoy.as_raw_fd())), None);
    }
}
