//! Threads of other processes that wait for an object in shared memory.

use crate::proc::{MapEntry, parse_maps, parse_syscall};
use crate::runtimes::FutexWait;
use crate::sys::file::numbers_in;
use crate::target::Target;
use crate::{Lwp, Pid, RemoteAddr};

/// Who else may wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharers {
    /// Threads of other processes that wait on a word of the object.
    pub waiters: Vec<(Pid, Lwp)>,
    /// Processes that could not be looked at. They may have waiters, or have nothing to do with it.
    pub unread: usize,
}

/// Looks for waiters on the `size` bytes at `address` in other processes that map the same file or memory.
/// Finds nothing for what is not in shared memory.
pub fn find_sharers(target: &dyn Target, address: RemoteAddr, size: u64) -> Sharers {
    let mut sharers = Sharers::default();
    let Some(mine) = target.maps().iter().find(|map| map.contains(address)) else { return sharers };
    if !mine.shared || mine.inode == 0 {
        return sharers;
    }
    let offset = mine.offset.wrapping_add(address.0.wrapping_sub(mine.start.0));
    for pid in numbers_in("/proc").into_iter().map(Pid).filter(|pid| *pid != target.pid()) {
        match std::fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) => {
                let maps = parse_maps(&maps).0;
                let places = maps.iter().filter_map(|map| place(mine, map, offset));
                sharers.waiters.extend(places.flat_map(|place| waiters(pid, place, size)).map(|lwp| (pid, lwp)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => sharers.unread += 1,
            Err(_) => {}
        }
    }
    sharers
}

/// Where `map` has what lies at `offset` in the file of `mine`.
fn place(mine: &MapEntry, map: &MapEntry, offset: u64) -> Option<RemoteAddr> {
    let same = map.shared && map.inode == mine.inode && map.name == mine.name;
    let at = map.start.checked_add(offset.checked_sub(map.offset)?)?;
    (same && map.contains(at)).then_some(at)
}

fn waiters(pid: Pid, address: RemoteAddr, size: u64) -> impl Iterator<Item = Lwp> {
    numbers_in(&format!("/proc/{pid}/task")).into_iter().map(Lwp).filter(move |lwp| {
        let call = std::fs::read(format!("/proc/{pid}/task/{lwp}/syscall")).ok();
        let wait = call.and_then(|call| parse_syscall(&call)).and_then(|call| FutexWait::of(&call));
        wait.is_some_and(|wait| wait.word.0.checked_sub(address.0).is_some_and(|at| at < size))
    })
}
