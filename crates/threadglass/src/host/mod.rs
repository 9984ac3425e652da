//! Processes around the target: who is at the other end of a descriptor, who holds a file lock, which are its children.
//!
//! Links of `/proc/PID/fd` are read and never followed: to open what they lead to would act on it.

mod descriptors;
mod file_locks;
mod sockets;

pub(crate) use descriptors::{OpenEnd, ends_of_pipe, holders_of};
pub(crate) use file_locks::lock_holders;
pub(crate) use sockets::socket;

use crate::Pid;

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

/// All processes that can be seen from here.
fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
}
