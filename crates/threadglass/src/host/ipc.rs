//! Queues and semaphores that processes share by a number or a name: who used one last, and who has one open.

use super::descriptors::{OpenFiles, Place, end, file_at};
use super::terminals::job;
use super::{Holders, OpenEnd, of_living};
use crate::Pid;
use crate::sys::clock;
use crate::sys::ipc::{SemaphoreValue, in_namespace, semaphore};
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Who used a queue or semaphore last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastUser {
    /// Nobody so far, or one that has no number here.
    Nobody,
    /// This process.
    Process(Pid),
    /// One that has ended since.
    Ended(Pid),
}

/// A queue of System V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageQueue {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) sent: LastUser,
    pub(crate) received: LastUser,
}

/// A semaphore of System V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemSemaphore {
    pub(crate) value: i32,
    pub(crate) changed: LastUser,
}

/// Why something cannot be told.
pub(crate) type NotTold = &'static str;

const REMOVED: NotTold = "it is not there any more";
const FORBIDDEN: NotTold = "only its owner and root may ask who used it last";
const ELSEWHERE: NotTold = "it is in an IPC namespace that may not be entered";

/// What the kernel lists of the queues and semaphores of System V. Each namespace is read once: very many threads may wait.
#[derive(Default)]
pub(super) struct SystemV {
    namespaces: RefCell<HashMap<PathBuf, Result<Rc<Listed>, NotTold>>>,
}

/// The queues of one namespace by their numbers, and when its sets of semaphores were changed last.
struct Listed {
    queues: HashMap<i32, ListedQueue>,
    changed: HashMap<i32, i64>,
}

/// A queue as it is listed. Who used it is looked for only of those that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedQueue {
    bytes: u64,
    messages: u64,
    /// Numbers of processes, and when.
    sent: (i32, i64),
    received: (i32, i64),
}

impl ListedQueue {
    fn told(&self) -> MessageQueue {
        let user = |(number, when): (i32, i64)| last_user(number, when);
        MessageQueue {
            bytes: self.bytes,
            messages: self.messages,
            sent: user(self.sent),
            received: user(self.received),
        }
    }
}

impl SystemV {
    /// The queue with the number `id` in the namespace of `pid`.
    pub(super) fn message_queue(&self, pid: Pid, id: i32) -> Result<MessageQueue, NotTold> {
        self.listed(pid)?.queues.get(&id).map(ListedQueue::told).ok_or(REMOVED)
    }

    /// A semaphore of a set in the namespace of `pid`.
    pub(super) fn semaphore(&self, pid: Pid, id: i32, number: i32) -> Result<SystemSemaphore, NotTold> {
        let found = seen_by(pid, &namespace_of(pid)?, move || semaphore(id, number))?;
        let SemaphoreValue { value, last } = found.map_err(|error| match error {
            Errno::EACCES | Errno::EPERM => FORBIDDEN,
            _ => REMOVED,
        })?;
        let when = self.listed(pid)?.changed.get(&id).copied().unwrap_or(i64::MAX);
        Ok(SystemSemaphore { value, changed: last_user(last.0, when) })
    }

    fn listed(&self, pid: Pid) -> Result<Rc<Listed>, NotTold> {
        let name = namespace_of(pid)?;
        let mut namespaces = self.namespaces.borrow_mut();
        let read = || {
            let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
            let (queues, sets) = seen_by(pid, &name, move || (text("/proc/sysvipc/msg"), text("/proc/sysvipc/sem")))?;
            let queues = queues.lines().filter_map(queue_in).collect();
            Ok(Rc::new(Listed { queues, changed: sets.lines().filter_map(changed_in).collect() }))
        };
        namespaces.entry(name.clone()).or_insert_with(read).clone()
    }
}

fn namespace_of(pid: Pid) -> Result<PathBuf, NotTold> {
    of_living(pid, |task| std::fs::read_link(format!("{task}/ns/ipc")).ok()).ok_or(ELSEWHERE)
}

/// What `read` finds in the IPC namespace `name`, which is that of `pid`.
fn seen_by<T: Send + 'static>(
    pid: Pid,
    name: &PathBuf,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotTold> {
    if namespace_of(Pid(std::process::id() as i32)).as_ref() == Ok(name) {
        return Ok(read());
    }
    let file = of_living(pid, |task| File::open(format!("{task}/ns/ipc")).ok()).ok_or(ELSEWHERE)?;
    in_namespace(file, read).ok_or(ELSEWHERE)
}

/// `key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime`
fn queue_in(line: &str) -> Option<(i32, ListedQueue)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<i64>().ok();
    let user = |pid: usize, when: usize| Some((i32::try_from(number(pid)?).ok()?, number(when)?));
    let queue = ListedQueue {
        bytes: number(3)?.try_into().ok()?,
        messages: number(4)?.try_into().ok()?,
        sent: user(5, 11)?,
        received: user(6, 12)?,
    };
    Some((i32::try_from(number(1)?).ok()?, queue))
}

/// When a set of semaphores was changed last: `key semid perms nsems uid gid cuid cgid otime ctime`.
fn changed_in(line: &str) -> Option<(i32, i64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let id = words.next()?.parse().ok()?;
    let (operated, set) = (words.nth(6)?.parse::<i64>().ok()?, words.next()?.parse::<i64>().ok()?);
    Some((id, operated.max(set)))
}

/// The process that had this number at a time, in seconds since 1970.
fn last_user(number: i32, when: i64) -> LastUser {
    if number <= 0 {
        return LastUser::Nobody;
    }
    let pid = Pid(number);
    // One that was started later has only the number of the one that did it.
    match started(pid) {
        Some(started) if started <= when.saturating_add(1) => LastUser::Process(pid),
        _ => LastUser::Ended(pid),
    }
}

/// When a process was started, in seconds since 1970.
fn started(pid: Pid) -> Option<i64> {
    /// Ticks of the kernel's files in a second.
    const TICKS: u64 = 100;
    let age = clock::since_boot().as_secs().saturating_sub(job(pid)?.start_time / TICKS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(now.saturating_sub(age)).ok()
}

/// Who has the POSIX message queue open that `place` leads to, with an end that is `wanted`.
pub(super) fn at_named_queue(link: &str, place: Place, open: &OpenFiles, wanted: impl Fn(&OpenEnd) -> bool) -> Holders {
    let Some(queue) = file_at(place) else { return Holders::of(Vec::new(), false) };
    let is_it = |place: &&Place| file_at(**place) == Some(queue);
    let ends = open.named(link).iter().filter(is_it).filter_map(|place| end(*place)).filter(wanted);
    Holders::of(ends.map(|end| end.place).collect(), open.is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_queues_and_semaphores() {
        let me = std::process::id() as i32;
        let line = format!("0x00000000 7 600 12 3 {me} 4194304 0 0 0 0 99999999999 5 4");
        let (id, queue) = queue_in(&line).unwrap();
        let expected = MessageQueue {
            bytes: 12,
            messages: 3,
            sent: LastUser::Process(Pid(me)),
            received: LastUser::Ended(Pid(4194304)),
        };
        assert_eq!((id, queue.told()), (7, expected));
        assert_eq!(queue_in("key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime"), None);
        assert_eq!(changed_in("0 3 600 1 0 0 0 0 50 40"), Some((3, 50)));
        assert_eq!(changed_in("key semid perms nsems uid gid cuid cgid otime ctime"), None);
    }

    #[test]
    fn one_that_was_started_later_did_not_do_it() {
        let me = std::process::id() as i32;
        assert_eq!(last_user(0, 5), LastUser::Nobody);
        assert_eq!(last_user(me, 5), LastUser::Ended(Pid(me)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        assert_eq!(last_user(me, now), LastUser::Process(Pid(me)));
    }
}
