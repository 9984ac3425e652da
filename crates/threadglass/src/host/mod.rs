//! Processes around the target: who is at the other end of a descriptor, who holds a file lock, which are its children.
//!
//! Links of `/proc/PID/fd` are read and never followed: to open what they lead to would act on it.

mod descriptors;
mod file_locks;
mod ipc;
mod sockets;
mod tcp;
mod terminals;

pub(crate) use crate::sys::sock_diag::{TcpTimes, unix_name};
use descriptors::{EVENTFD, info_of};
pub(crate) use descriptors::{OpenEnd, Place};
pub(crate) use file_locks::{ByteRange, OF_DESCRIPTOR, OF_FLOCK, OF_PROCESS, WantedLock};
pub(crate) use ipc::{LastUser, MessageQueue, NotTold, SystemSemaphore};
pub(crate) use sockets::{OtherEnd, Socket};
pub(crate) use terminals::{TerminalSide, in_group, job, terminal_name};

use crate::limits::Limits;
use crate::{Lwp, Pid};
use descriptors::OpenFiles;
use file_locks::FileLocks;
use ipc::SystemV;
use sockets::Sockets;
use std::cell::OnceCell;
use std::path::Path;

/// The processes of this machine, as far as they can be seen from here. Each part is read when it is asked for, once.
pub(crate) struct Host {
    limits: Limits,
    open: OnceCell<OpenFiles>,
    sockets: Sockets,
    file_locks: FileLocks,
    system_v: SystemV,
}

/// Processes that were found, and whether there can be no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    /// With the descriptor, where it is by one.
    pub(crate) places: Vec<(Pid, Option<i32>)>,
    /// Whether the kernel says which one it is.
    pub(crate) is_recorded: bool,
    /// Whether all processes of the machine were looked at.
    pub(crate) is_whole: bool,
}

impl Holders {
    /// Those that have these descriptors.
    fn of(places: Vec<Place>, is_whole: bool) -> Self {
        let places = places.into_iter().map(|(pid, number)| (pid, Some(number))).collect();
        Self { places, is_recorded: false, is_whole }
    }

    /// The processes, each once.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.places.iter().map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The descriptors by which `pid` is one of them.
    pub(crate) fn numbers_of(&self, pid: Pid) -> Vec<i32> {
        self.places.iter().filter(|(holder, _)| *holder == pid).filter_map(|(_, number)| *number).collect()
    }
}

impl Host {
    /// For a look with these limits.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            open: OnceCell::new(),
            sockets: Sockets::default(),
            file_locks: FileLocks::default(),
            system_v: SystemV::default(),
        }
    }

    /// Who has an end of the pipe or FIFO `link` open that is `wanted`; `place` is a descriptor that leads to it.
    pub(crate) fn at_pipe(&self, link: &str, place: Place, wanted: impl Fn(&OpenEnd) -> bool) -> Holders {
        let open = self.open_files();
        let ends = open.ends_of_pipe(link, place).into_iter().filter(wanted).map(|end| end.place);
        Holders::of(ends.collect(), open.is_whole)
    }

    /// The socket `link` (`socket:[123]`) of `pid`.
    pub(crate) fn socket(&self, pid: Pid, link: &str) -> Option<Socket> {
        self.sockets.find(pid, link)
    }

    /// What a socket of `pid` is that waits to be connected to the unix socket `name`, or to send a datagram there.
    pub(crate) fn unix_socket_to(&self, pid: Pid, name: &str, sends: bool) -> Option<Socket> {
        if sends { self.sockets.sending_to(pid, name) } else { self.sockets.connecting_to(pid, name) }
    }

    /// Who has one of the sockets with these inodes open.
    pub(crate) fn at_sockets(&self, inodes: &[u64]) -> Holders {
        let open = self.open_files();
        Holders::of(inodes.iter().flat_map(|inode| open.at_socket(*inode)).collect(), open.is_whole)
    }

    /// Who has the eventfd open that a descriptor leads to; `None` where that is none, or this kernel does not number them.
    pub(crate) fn at_eventfd(&self, place: Place, link: &str) -> Option<Holders> {
        let number =
            descriptors::eventfd_in(&Some(link).filter(|link| *link == EVENTFD).and_then(|_| info_of(place))?)?;
        let open = self.open_files();
        Some(Holders::of(open.at_eventfd(number).to_vec(), open.is_whole))
    }

    /// The side of a pseudo terminal that a descriptor leads to, and who has the other side.
    pub(crate) fn terminal(&self, place: Place) -> Option<(TerminalSide, Holders)> {
        let side = TerminalSide::at(place)?;
        Some((side, side.others(self.open_files())))
    }

    /// Who has the POSIX message queue `link` open, with an end that is `wanted`; `place` is a descriptor that leads to it.
    pub(crate) fn at_named_queue(&self, link: &str, place: Place, wanted: impl Fn(&OpenEnd) -> bool) -> Holders {
        ipc::at_named_queue(link, place, self.open_files(), wanted)
    }

    /// The queue of System V with the number `id` in the namespace of `pid`.
    pub(crate) fn message_queue(&self, pid: Pid, id: i32) -> Result<MessageQueue, NotTold> {
        self.system_v.message_queue(pid, id)
    }

    /// A semaphore of a set of System V in the namespace of `pid`.
    pub(crate) fn system_semaphore(&self, pid: Pid, id: i32, number: i32) -> Result<SystemSemaphore, NotTold> {
        self.system_v.semaphore(pid, id, number)
    }

    /// Who holds the lock that a thread of `pid` waits for.
    pub(crate) fn lock_holders(&self, pid: Pid, wanted: WantedLock, path: Option<&str>) -> Option<Holders> {
        self.file_locks.holders(pid, wanted, path, || self.open_files())
    }

    /// Whether descriptors are on their way from one process to another, in messages that nobody has received yet: those
    /// that have them cannot be found.
    pub(crate) fn has_descriptors_under_way(&self) -> bool {
        let is_none =
            |info: &str| info.lines().find_map(|it| it.strip_prefix("scm_fds:")).is_none_or(|it| it.trim() == "0");
        self.open_files().all_sockets().any(|place| info_of(*place).is_some_and(|info| !is_none(&info)))
    }

    /// How many descriptors were found, of pipes, sockets and named files.
    pub(crate) fn descriptors(&self) -> usize {
        self.open.get().map_or(0, OpenFiles::len)
    }

    fn open_files(&self) -> &OpenFiles {
        self.open.get_or_init(|| OpenFiles::read(&self.limits))
    }
}

/// What `read` gets of a process, given a directory of `/proc`. A main thread that has ended has let go of what the other threads
/// still have: then one of those is asked.
fn of_living<T>(pid: Pid, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    /// Threads that are asked.
    const MOST: usize = 16;
    let others = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).filter(|lwp| *lwp != pid.0).take(MOST)
    };
    read(&format!("/proc/{pid}")).or_else(|| others().find_map(|lwp: i32| read(&format!("/proc/{pid}/task/{lwp}"))))
}

/// The name of a process.
pub(crate) fn name_of(pid: Pid) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.flat_map(|task| listed_children(&task.path())).collect()
}

/// The child that a thread of a process has started last.
pub(crate) fn last_child(pid: Pid, lwp: Lwp) -> Option<Pid> {
    listed_children(format!("/proc/{pid}/task/{lwp}").as_ref()).pop()
}

/// The children of one thread, in the order in which they were started.
fn listed_children(task: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(task.join("children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).map(Pid).collect()
}

/// The processes that one of these threads traces.
pub(crate) fn traced_by(tracers: &[Lwp]) -> Vec<Pid> {
    let is_traced = |pid: &Pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok());
        tracer.is_some_and(|tracer| tracers.contains(&Lwp(tracer)))
    };
    processes().filter(is_traced).collect()
}

/// All processes that can be seen from here.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
}
