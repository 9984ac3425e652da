//! Processes around the target: who is at the other end of a descriptor, who holds a file lock, which are its children.
//!
//! Links of `/proc/PID/fd` are read and never followed: to open what they lead to would act on it.

mod descriptors;
mod file_locks;
mod sockets;

pub(crate) use descriptors::OpenEnd;
pub(crate) use sockets::Socket;

use crate::Pid;
use crate::limits::Limits;
use crate::model::Evidence;
use descriptors::OpenFiles;
use file_locks::FileLocks;
use sockets::Sockets;
use std::cell::OnceCell;

/// Entries of one sort that are kept: descriptors, or locks.
const MAX_ENTRIES: usize = 1 << 20;

/// The processes of this machine, as far as they can be seen from here. Each part is read when it is asked for, once.
pub(crate) struct Host {
    limits: Limits,
    open: OnceCell<OpenFiles>,
    locks: OnceCell<FileLocks>,
    sockets: Sockets,
}

/// Processes that were found, and whether there can be no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    pub(crate) pids: Vec<(Pid, Evidence)>,
    /// Whether all processes of the machine were looked at.
    pub(crate) is_whole: bool,
}

impl Holders {
    /// Those of `pids` but for `own`: several that could be meant are each inferred, and so is one if others were not seen.
    fn others(own: Pid, mut pids: Vec<Pid>, is_whole: bool) -> Self {
        pids.retain(|pid| *pid != own);
        pids.sort_unstable();
        pids.dedup();
        let evidence = if pids.len() == 1 && is_whole { Evidence::Derived } else { Evidence::Inferred };
        Self { pids: pids.into_iter().map(|pid| (pid, evidence)).collect(), is_whole }
    }
}

impl Host {
    /// For a look with these limits.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), open: OnceCell::new(), locks: OnceCell::new(), sockets: Sockets::default() }
    }

    /// Who else has an end of the pipe `file` (`pipe:[123]`) open that is `wanted`.
    pub(crate) fn at_pipe(&self, own: Pid, file: &str, wanted: impl Fn(&OpenEnd) -> bool) -> Holders {
        let open = self.open_files();
        let ends = open.ends_of_pipe(file).into_iter().filter(wanted).map(|end| end.pid);
        Holders::others(own, ends.collect(), open.is_whole)
    }

    /// The socket `file` (`socket:[123]`) of `pid`.
    pub(crate) fn socket(&self, pid: Pid, file: &str) -> Option<Socket> {
        self.sockets.find(pid, file)
    }

    /// Who else has the socket `file` open.
    pub(crate) fn at_socket(&self, own: Pid, file: &str) -> Holders {
        let open = self.open_files();
        Holders::others(own, open.holders_of(file).iter().map(|(pid, _)| *pid).collect(), open.is_whole)
    }

    /// Who holds the lock on the file behind `descriptor` that a thread of `pid` waits for.
    pub(crate) fn lock_holders(&self, pid: Pid, descriptor: i32) -> Option<Holders> {
        file_locks::holders(pid, descriptor, || self.locks.get_or_init(|| FileLocks::read(&self.limits)))
    }

    fn open_files(&self) -> &OpenFiles {
        self.open.get_or_init(|| OpenFiles::read(&self.limits))
    }
}

/// The name of a process.
pub(crate) fn name_of(pid: Pid) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut found: Vec<Pid> = Vec::new();
    for task in tasks {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).map(Pid));
    }
    found
}

/// What `one` gives for each entry of the directory `name` (`fd`, `fdinfo`) of every process, and whether that is all there is:
/// not where a process may not be looked into, or lives outside of our namespace, nor when the look has used its time.
fn of_all_descriptors<T>(
    limits: &Limits,
    name: &str,
    mut one: impl FnMut(Pid, &std::fs::DirEntry) -> Option<T>,
) -> (Vec<T>, bool) {
    let mut found = Vec::new();
    let mut is_whole = sees_all_processes();
    for pid in processes() {
        let entries = match std::fs::read_dir(format!("/proc/{pid}/{name}")) {
            Ok(entries) => entries.flatten(),
            Err(error) => {
                // One that has ended meanwhile has nothing open.
                is_whole &= error.kind() == std::io::ErrorKind::NotFound;
                continue;
            }
        };
        for entry in entries {
            if limits.is_over() || found.len() >= MAX_ENTRIES {
                return (found, false);
            }
            found.extend(one(pid, &entry));
        }
    }
    (found, is_whole)
}

/// Whether our `/proc` is that of the first pid namespace, in which all processes are.
fn sees_all_processes() -> bool {
    /// The number that the kernel gives that namespace.
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST)
}

/// All processes that can be seen from here.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
}
