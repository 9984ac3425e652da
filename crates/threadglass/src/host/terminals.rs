//! Pseudo terminals: who has the other side of one, and which process group has its foreground.

use super::descriptors::{OpenFiles, Place, file_at, info_of};
use super::{Holders, of_living, processes};
use crate::Pid;
use crate::proc::{Job, parse_job};

/// A side of a pseudo terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TerminalSide {
    /// The number of the terminal: that of `/dev/pts/7`.
    pub(crate) index: u32,
    /// Whether it is the side of the one that made the terminal: of an emulator, of `sshd`.
    pub(crate) is_master: bool,
    /// The device of the file system in which the terminal has that number: each container may have one of its own.
    instance: Option<(u32, u32)>,
}

/// Major numbers of the side that programs have.
const SLAVES: std::ops::RangeInclusive<u32> = 136..=143;
/// Terminals of one major number.
const MINORS: u32 = 256;
/// `/dev/tty`: the terminal of whoever asks. `/dev/ptmx`: the side of who made it.
const OWN: (u32, u32) = (5, 0);
const MASTER: (u32, u32) = (5, 2);

impl TerminalSide {
    /// The side that a descriptor leads to.
    pub(super) fn at(place: Place) -> Option<Self> {
        let file = file_at(place)?;
        let device = file.character_device()?;
        match device {
            MASTER => {
                let info = info_of(place)?;
                let index = info.lines().find_map(|line| line.strip_prefix("tty-index:")?.trim().parse().ok())?;
                let link = link_of(place)?;
                let dir = link.strip_suffix("/ptmx")?;
                // It is one of the file system that it is in, or that is beside it.
                let instance =
                    if dir.ends_with("/pts") { Some(file.device) } else { mounted_at(place.0, &format!("{dir}/pts")) };
                Some(Self { index, is_master: true, instance })
            }
            OWN => {
                let index = slave(job(place.0)?.terminal?)?;
                Some(Self { index, is_master: false, instance: mounted_at(place.0, "/dev/pts") })
            }
            number => Some(Self { index: slave(number)?, is_master: false, instance: Some(file.device) }),
        }
    }

    /// Who has the other side.
    pub(super) fn others(&self, open: &OpenFiles) -> Holders {
        let mut is_whole = open.is_whole;
        let slaves = || {
            let number = self.index.to_string();
            let names = [number.as_str(), "tty", "console"];
            let places: Vec<Place> = names.iter().flat_map(|name| open.named(name)).copied().collect();
            places.into_iter().filter_map(|place| Some((Self::at(place)?, place))).collect()
        };
        let sides: Vec<(Self, Place)> = if self.is_master { slaves() } else { open.masters().to_vec() };
        let mut places = Vec::new();
        for (side, place) in sides {
            if side.index != self.index || side.is_master == self.is_master {
                continue;
            }
            match side.instance.zip(self.instance) {
                Some((one, other)) if one != other => continue,
                Some(_) => {}
                // It may be another terminal that has the same number.
                None => is_whole = false,
            }
            places.push(place);
        }
        Holders::of(places, is_whole)
    }

    /// Which of these processes have its foreground.
    pub(crate) fn foreground(&self, pids: &[Pid]) -> Vec<Pid> {
        let is_there = |job: &Job| job.terminal.and_then(slave) == Some(self.index) && job.group == job.foreground;
        pids.iter().copied().filter(|pid| job(*pid).is_some_and(|job| is_there(&job))).collect()
    }
}

/// The number of the terminal with this device number.
fn slave((major, minor): (u32, u32)) -> Option<u32> {
    let block = SLAVES.contains(&major).then(|| major - SLAVES.start())?;
    block.checked_mul(MINORS)?.checked_add(minor)
}

fn link_of((pid, number): Place) -> Option<String> {
    let link = |task: &str| std::fs::read_link(format!("{task}/fd/{number}")).ok();
    of_living(pid, link)?.into_os_string().into_string().ok()
}

/// The device of the terminals' file system that a process has mounted at `path`.
fn mounted_at(pid: Pid, path: &str) -> Option<(u32, u32)> {
    let text = of_living(pid, |task| std::fs::read_to_string(format!("{task}/mountinfo")).ok())?;
    text.lines().filter_map(|line| terminals_in(line, path)).next_back()
}

/// `29 24 0:26 / /dev/pts rw,relatime - devpts devpts rw`
fn terminals_in(line: &str, path: &str) -> Option<(u32, u32)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    let is_it = words.nth(1) == Some(path) && system.starts_with("devpts ");
    is_it.then_some((major.parse().ok()?, minor.parse().ok()?))
}

/// What job control knows of a process.
pub(crate) fn job(pid: Pid) -> Option<Job> {
    parse_job(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a terminal by its device number.
pub(crate) fn terminal_name(number: (u32, u32)) -> String {
    match (slave(number), number) {
        (Some(index), _) => format!("/dev/pts/{index}"),
        (None, (4, minor @ ..64)) => format!("/dev/tty{minor}"),
        (None, (4, minor)) => format!("/dev/ttyS{}", minor - 64),
        (None, (5, 1)) => "/dev/console".to_owned(),
        (None, (major, minor)) => format!("with the device number {major}:{minor}"),
    }
}

/// The processes of a group that are in this session.
pub(crate) fn in_group(group: i32, session: i32) -> Vec<Pid> {
    let is_it = |pid: &Pid| job(*pid).is_some_and(|job| (job.group, job.session) == (group, session));
    processes().filter(is_it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_terminal_of_ours_and_a_file_that_is_none() {
        let Ok(made) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx") else { return };
        let place = (Pid(std::process::id() as i32), made.as_raw_fd());
        let side = TerminalSide::at(place).unwrap();
        assert!(side.is_master && side.instance.is_some(), "{side:?}");
        // Nobody has opened the other side.
        assert_eq!(side.others(&OpenFiles::read(&Limits::default())).places, []);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(TerminalSide::at((place.0, file.as_raw_fd())), None);
    }

    #[test]
    fn lines_of_mounts_and_numbers_of_devices() {
        let line = "29 24 0:26 / /dev/pts rw,relatime shared:3 - devpts devpts rw,mode=600";
        assert_eq!(terminals_in(line, "/dev/pts"), Some((0, 26)));
        assert_eq!(terminals_in(line, "/pts"), None);
        assert_eq!(terminals_in("29 24 0:26 / /dev/pts rw - tmpfs tmpfs rw", "/dev/pts"), None);
        assert_eq!(terminals_in("rubbish", "/dev/pts"), None);
        assert_eq!((slave((136, 3)), slave((137, 3)), slave((4, 1))), (Some(3), Some(259), None));
        assert_eq!(terminal_name((4, 1)), "/dev/tty1");
        assert_eq!(terminal_name((4, 64)), "/dev/ttyS0");
    }
}
