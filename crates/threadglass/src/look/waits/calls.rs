//! What a thread waits for in a system call that is none of a lock.

use crate::RemoteAddr;
use crate::host::{ByteRange, OF_DESCRIPTOR, OF_FLOCK, OF_PROCESS, WantedLock};
use crate::limits::Limits;
use crate::memory::Memory;
use crate::model::{Descriptor, Direction, OutsideKind, Syscall, Thread};
use crate::target::Target;

/// Descriptors that are listed of a call that takes many.
const LISTED: usize = 16;
/// Descriptors that one call can name here.
const MOST: u64 = 1024;

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// Events of many sorts, or connections: how servers wait for work.
    Events,
    /// Time.
    Timer,
    /// Signals.
    Signal,
    /// What somebody else writes.
    Input,
    /// That somebody else reads.
    Output,
    /// Either of both, of a call that takes from one descriptor what it gives to another.
    Transfer,
    /// A child.
    Child,
    /// A lock on a file.
    FileLock,
    /// A word in memory.
    Word,
    /// Something else.
    Other,
}

impl Outside {
    /// Whether this is how threads wait for work.
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Events | Self::Timer | Self::Signal)
    }
}

/// How a call takes descriptors.
enum Takes {
    Nothing,
    /// As its first argument.
    One,
    /// The one that it reads from first, then the one that it writes to, which is this argument.
    Two(usize),
    /// An array of `struct pollfd`.
    Poll,
    /// Three sets of bits.
    Select,
}

/// What the calls that block for long wait for, how they take descriptors, and what a thread in one is doing.
fn known(name: &str) -> (Outside, Takes, &'static str) {
    use Outside::{Child, Events, FileLock, Input, Other, Output, Signal, Timer, Transfer, Word};
    match name {
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => (Events, Takes::One, "waiting for events"),
        "poll" | "ppoll" => (Events, Takes::Poll, "waiting for events"),
        "select" | "pselect6" => (Events, Takes::Select, "waiting for events"),
        "io_uring_enter" | "io_getevents" | "io_pgetevents" => (Events, Takes::One, "waiting for completions"),
        "accept" | "accept4" => (Events, Takes::One, "waiting for a connection"),
        "nanosleep" | "clock_nanosleep" => (Timer, Takes::Nothing, "sleeping for a time"),
        // A call that a stop or a debugger interrupted, and which goes on; mostly it has a time limit.
        "restart_syscall" => (Timer, Takes::Nothing, "waiting in a call that was interrupted and goes on"),
        "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => (Signal, Takes::Nothing, "waiting for a signal"),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "getdents64" => (Input, Takes::One, "reading"),
        "recvfrom" | "recvmsg" | "recvmmsg" => (Input, Takes::One, "receiving"),
        "mq_timedreceive" => (Input, Takes::One, "receiving"),
        "msgrcv" => (Input, Takes::Nothing, "receiving from a System V queue"),
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "sendfile" | "vmsplice" => {
            (Output, Takes::One, "writing")
        }
        "splice" => (Transfer, Takes::Two(2), "moving bytes from one to another"),
        "tee" => (Transfer, Takes::Two(1), "copying bytes from one to another"),
        "sendto" | "sendmsg" | "sendmmsg" | "mq_timedsend" => (Output, Takes::One, "sending"),
        "msgsnd" => (Output, Takes::Nothing, "sending to a System V queue"),
        "connect" => (Output, Takes::One, "connecting"),
        "fsync" | "fdatasync" | "sync_file_range" => (Output, Takes::One, "waiting for the disk"),
        "wait4" | "waitid" => (Child, Takes::Nothing, "waiting for a child process"),
        // These return at once but for a child that uses the memory of its parent until it executes or ends.
        "vfork" | "clone" | "clone3" => (Child, Takes::Nothing, "waiting for its vfork child"),
        "flock" => (FileLock, Takes::One, "waiting for a file lock"),
        "fcntl" => (FileLock, Takes::One, "waiting in fcntl, as for a file lock"),
        "open" | "openat" | "openat2" => (Other, Takes::Nothing, "opening a file"),
        "execve" | "execveat" => (Other, Takes::Nothing, "starting a program"),
        "close" => (Other, Takes::One, "closing"),
        "stat" | "lstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2" => {
            (Other, Takes::Nothing, "asking about a file")
        }
        "ioctl" => (Other, Takes::One, "in ioctl"),
        "semop" | "semtimedop" => (Other, Takes::Nothing, "waiting for a System V semaphore"),
        "futex" | "futex_wait" | "futex_waitv" => (Word, Takes::Nothing, "waiting on a futex"),
        _ => (Other, Takes::Nothing, ""),
    }
}

/// What a thread in `call` waits for.
pub(super) fn outside(call: &Syscall) -> Outside {
    known(&call.name).0
}

/// Whether a thread in `call` waits for a time or a signal, and for nobody.
pub(crate) fn rests(call: &Syscall) -> bool {
    matches!(outside(call), Outside::Timer | Outside::Signal)
}

/// Whether a thread in `call` goes on after a time.
pub(super) fn sleeps(call: &Syscall) -> bool {
    outside(call) == Outside::Timer
}

/// Whether a thread in `call` waits for what somebody outside of the process does, and not for work that may come.
pub(crate) fn waits_for_others(call: &Syscall) -> bool {
    !outside(call).is_idle() && outside(call) != Outside::Word
}

/// Whether a thread in `call` waits for a child.
pub(crate) fn waits_for_child(call: &Syscall) -> bool {
    outside(call) == Outside::Child
}

/// What a thread in `call` waits for outside of the process; `None` for a word in memory, and where it is not known.
pub(super) fn kind_of(call: &Syscall) -> Option<OutsideKind> {
    const SET_LOCK_AND_WAIT: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];
    let file = call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    let of_file = |file: &str| match file {
        _ if file.starts_with("pipe:") => OutsideKind::Pipe,
        _ if file.starts_with("socket:") => OutsideKind::Socket,
        _ if is_terminal(file) => OutsideKind::Terminal,
        "anon_inode:[eventfd]" => OutsideKind::Eventfd,
        "anon_inode:[timerfd]" => OutsideKind::Timer,
        "anon_inode:[signalfd]" => OutsideKind::Signal,
        "anon_inode:inotify" | "anon_inode:[fanotify]" => OutsideKind::Inotify,
        _ => OutsideKind::File,
    };
    Some(match (outside(call), &*call.name) {
        (_, "msgrcv" | "msgsnd" | "mq_timedreceive" | "mq_timedsend") => OutsideKind::MessageQueue,
        (_, "semop" | "semtimedop") => OutsideKind::Semaphore,
        (_, "accept" | "accept4") => OutsideKind::Connection,
        (_, "io_uring_enter" | "io_getevents" | "io_pgetevents") => OutsideKind::Completion,
        (_, "fcntl") if !SET_LOCK_AND_WAIT.contains(&call.args[1]) => return None,
        (Outside::Events, _) => OutsideKind::EventLoop,
        (Outside::Timer, _) => OutsideKind::Timer,
        (Outside::Signal, _) => OutsideKind::Signal,
        (Outside::Child, _) => OutsideKind::Child,
        (Outside::FileLock, _) => OutsideKind::FileLock,
        (Outside::Input | Outside::Output, _) => of_file(file?),
        // One of the two is a pipe.
        (Outside::Transfer, _) => OutsideKind::Pipe,
        (Outside::Word | Outside::Other, _) => return None,
    })
}

/// Whether a descriptor with this link seems to lead to a terminal.
pub(super) fn is_terminal(link: &str) -> bool {
    ["/dev/pts/", "/dev/tty", "/dev/console", "/dev/ptmx"].iter().any(|name| link.starts_with(name))
}

/// A time that nobody waits for: ten years.
const ENDLESS: i64 = 10 * 365 * 24 * 3600;

/// Whether a thread in `call` stays there for ever, in a process that handles no signals: it waits for a signal, or for
/// nothing at all, or for a time that does not come.
pub(super) fn is_endless(memory: &dyn Memory, call: &Syscall) -> bool {
    let seconds = |at: u64| {
        let mut bytes = [0; 8];
        memory.read_exact(RemoteAddr(at), &mut bytes).ok().map(|()| i64::from_le_bytes(bytes))
    };
    let is_long = |at: u64| seconds(at).is_some_and(|seconds| seconds >= ENDLESS);
    match &*call.name {
        "pause" | "rt_sigsuspend" => true,
        "nanosleep" => is_long(call.args[0]),
        // A time of the wall clock is far away from its beginning in any case.
        "clock_nanosleep" => {
            let is_relative = call.args[1] as i32 & libc::TIMER_ABSTIME == 0;
            (is_relative || call.args[0] as i32 == libc::CLOCK_MONOTONIC) && is_long(call.args[2])
        }
        "poll" => call.args[1] == 0 && (call.args[2] as i32) < 0,
        "ppoll" => call.args[1] == 0 && call.args[2] == 0,
        _ => false,
    }
}

/// What a thread that is asleep in `call` is doing.
pub(crate) fn doing(call: &Syscall) -> String {
    let (outside, _, words) = known(&call.name);
    if words.is_empty() {
        return format!("asleep in {}", call.name);
    }
    let child = call.args[0] as i32;
    if outside == Outside::Child && call.name == "wait4" && child > 0 {
        return format!("waiting for child process {child} (wait4)");
    }
    let list = |descriptor: &Descriptor| match &descriptor.file {
        Some(file) => format!("{} ({file})", descriptor.number),
        None => descriptor.number.to_string(),
    };
    match call.descriptors.as_slice() {
        [] => format!("{words} ({})", call.name),
        [one] => format!("{words} ({} of descriptor {})", call.name, list(one)),
        many => {
            let shown: Vec<String> = many.iter().take(4).map(list).collect();
            let more = if many.len() > shown.len() { ", .." } else { "" };
            format!("{words} ({} of descriptors {}{more})", call.name, shown.join(", "))
        }
    }
}

/// Adds the descriptors of the calls that `threads` are in.
pub(crate) fn add_descriptors<'a>(target: &dyn Target, threads: impl IntoIterator<Item = &'a mut Thread>) {
    for call in threads.into_iter().filter_map(|thread| thread.syscall.as_mut()) {
        add_descriptors_of(target, call);
    }
}

/// Adds the descriptors of one call.
pub(crate) fn add_descriptors_of(target: &dyn Target, call: &mut Syscall) {
    if call.descriptors.is_empty() {
        let numbers = descriptors(target, call);
        let file = |number| Descriptor { number, file: target.descriptor_file(number) };
        call.descriptors = numbers.into_iter().take(LISTED).map(file).collect();
    }
}

fn descriptors(memory: &dyn Memory, call: &Syscall) -> Vec<i32> {
    match known(&call.name).1 {
        Takes::Nothing => Vec::new(),
        Takes::One => vec![call.args[0] as i32],
        Takes::Two(to) => vec![call.args[0] as i32, call.args[to] as i32],
        Takes::Poll => polled(memory, call).into_iter().map(|awaited| awaited.number).collect(),
        Takes::Select => selected(memory, call).into_iter().map(|awaited| awaited.number).collect(),
    }
}

/// A descriptor, and what a call waits for there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) number: i32,
    pub(super) direction: Direction,
}

/// The descriptors that a call waits for: of an event loop, all that it watches.
pub(super) fn awaited(target: &dyn Target, call: &Syscall) -> Vec<Awaited> {
    match known(&call.name) {
        (_, Takes::Poll, _) => polled(target, call),
        (_, Takes::Select, _) => selected(target, call),
        (Outside::Events, Takes::One, _) if call.name.starts_with("epoll") => {
            let info = target.descriptor_info(call.args[0] as i32).unwrap_or_default();
            info.lines().filter_map(in_epoll).take(MOST as usize).collect()
        }
        (Outside::Output, Takes::One, _) => {
            vec![Awaited { number: call.args[0] as i32, direction: Direction::Output }]
        }
        (_, Takes::One, _) => vec![Awaited { number: call.args[0] as i32, direction: Direction::Input }],
        (_, Takes::Two(to), _) => vec![
            Awaited { number: call.args[0] as i32, direction: Direction::Input },
            Awaited { number: call.args[to] as i32, direction: Direction::Output },
        ],
        (_, Takes::Nothing, _) => Vec::new(),
    }
}

/// `tfd:        5 events:       1b data: ..`: the bits are those of poll.
fn in_epoll(line: &str) -> Option<Awaited> {
    let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
    Some(Awaited { number, direction: direction_of(events) })
}

fn direction_of(events: u32) -> Direction {
    let has = |bit: i16| events & bit as u32 != 0;
    if has(libc::POLLOUT) && !has(libc::POLLIN) { Direction::Output } else { Direction::Input }
}

fn polled(memory: &dyn Memory, call: &Syscall) -> Vec<Awaited> {
    let mut bytes = vec![0; 8 * call.args[1].min(MOST) as usize];
    if memory.read_exact(RemoteAddr(call.args[0]), &mut bytes).is_err() {
        return Vec::new();
    }
    let awaited = |entry: &[u8; 8]| Awaited {
        number: i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
        direction: direction_of(u16::from_le_bytes([entry[4], entry[5]]).into()),
    };
    bytes.as_chunks().0.iter().map(awaited).filter(|awaited| awaited.number >= 0).collect()
}

/// The kernel writes its answer into the sets only when it returns.
fn selected(memory: &dyn Memory, call: &Syscall) -> Vec<Awaited> {
    let most = call.args[0].min(MOST) as usize;
    let set = |at: usize| {
        let mut bytes = vec![0u8; most.div_ceil(64) * 8];
        let is_read = call.args[at] != 0 && memory.read_exact(RemoteAddr(call.args[at]), &mut bytes).is_ok();
        if is_read { bytes } else { vec![0; most.div_ceil(64) * 8] }
    };
    let (input, output, other) = (set(1), set(2), set(3));
    let has = |set: &[u8], number: usize| set[number / 8] >> (number % 8) & 1 == 1;
    let awaited = |number: usize| {
        let direction = match (has(&input, number) || has(&other, number), has(&output, number)) {
            (true, _) => Direction::Input,
            (false, true) => Direction::Output,
            (false, false) => return None,
        };
        Some(Awaited { number: number as i32, direction })
    };
    (0..most).filter_map(awaited).collect()
}

/// Whether a call returns after some time whatever happens. What the program has set for a socket is not known.
pub(crate) fn is_timed(call: &Syscall) -> bool {
    let args = &call.args;
    match &*call.name {
        "poll" => args[2] as i32 >= 0,
        "epoll_wait" | "epoll_pwait" => args[3] as i32 >= 0,
        "ppoll" | "rt_sigtimedwait" => args[2] != 0,
        "epoll_pwait2" | "semtimedop" => args[3] != 0,
        "select" | "pselect6" | "mq_timedreceive" | "mq_timedsend" | "recvmmsg" | "io_getevents" | "io_pgetevents" => {
            args[4] != 0
        }
        "io_uring_enter" => true,
        _ => outside(call) == Outside::Timer,
    }
}

/// [`kind_of`] with what only the kernel can tell: a path may be that of a FIFO.
pub(super) fn kind_at(target: &dyn Target, call: &Syscall) -> Option<OutsideKind> {
    let is_fifo = || call.descriptors.first().is_some_and(|descriptor| target.is_fifo(descriptor.number));
    match kind_of(call)? {
        OutsideKind::File if is_fifo() => Some(OutsideKind::Pipe),
        kind => Some(kind),
    }
}

/// Which end a call that moves bytes waits at, by the function of the kernel that it sleeps in.
pub(super) fn direction_in(function: &str) -> Option<Direction> {
    let has = |parts: [&str; 3]| parts.iter().any(|part| function.contains(part));
    match (has(["readable", "_read", "wait_data"]), has(["writable", "wait_for_space", "stream_wait_memory"])) {
        (true, false) => Some(Direction::Input),
        (false, true) => Some(Direction::Output),
        _ => None,
    }
}

/// The path that a call was given; `None` also where no texts are wanted.
pub(super) fn path_of(memory: &dyn Memory, call: &Syscall, limits: &Limits) -> Option<String> {
    /// How much of it is read.
    const LENGTH: usize = 256;
    let at = match &*call.name {
        "open" | "creat" | "stat" | "lstat" | "access" | "mkdir" | "rmdir" | "unlink" | "rename" | "readlink"
        | "truncate" | "statfs" | "chdir" | "execve" => call.args[0],
        "openat" | "openat2" | "newfstatat" | "statx" | "mkdirat" | "unlinkat" | "renameat" | "renameat2"
        | "faccessat" | "faccessat2" | "readlinkat" | "execveat" => call.args[1],
        _ => return None,
    };
    let bytes = memory.read_up_to(RemoteAddr(at), LENGTH).ok().filter(|_| limits.takes_texts())?;
    let path = bytes.split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// The name of the unix socket that a call names, as the kernel's diagnosis writes it.
pub(super) fn addressed_to(memory: &dyn Memory, call: &Syscall) -> Option<String> {
    /// `struct sockaddr_un`.
    const SIZE: u64 = 110;
    let (at, size) = match &*call.name {
        "connect" => (call.args[1], call.args[2]),
        "sendto" => (call.args[4], call.args[5]),
        _ => return None,
    };
    let mut bytes = vec![0; size.min(SIZE) as usize];
    memory.read_exact(RemoteAddr(at), &mut bytes).ok()?;
    let (family, name) = bytes.split_at_checked(2)?;
    (family == (libc::AF_UNIX as u16).to_ne_bytes()).then(|| crate::host::unix_name(name))?
}

/// The file lock that a call waits for.
pub(super) fn wanted_lock(memory: &dyn Memory, call: &Syscall) -> WantedLock {
    let descriptor = call.args[0] as i32;
    match (&*call.name, call.args[1] == libc::F_OFD_SETLKW as u64) {
        ("fcntl", is_of_descriptor) => {
            let kind = if is_of_descriptor { OF_DESCRIPTOR } else { OF_PROCESS };
            WantedLock { descriptor, kind, range: locked_range(memory, RemoteAddr(call.args[2])) }
        }
        _ => WantedLock { descriptor, kind: OF_FLOCK, range: None },
    }
}

/// The bytes of `struct flock`: whence, start and length. Only bytes that are counted from the beginning of the file are known.
fn locked_range(memory: &dyn Memory, at: RemoteAddr) -> Option<ByteRange> {
    let mut bytes = [0; 24];
    memory.read_exact(at, &mut bytes).ok()?;
    let whence = i16::from_le_bytes([bytes[2], bytes[3]]);
    let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let (start, length) = (u64::try_from(number(8)).ok()?, u64::try_from(number(16)).ok()?);
    let last = if length == 0 { u64::MAX } else { start.checked_add(length - 1)? };
    (i32::from(whence) == libc::SEEK_SET).then_some((start, last))
}

/// In which direction a call waits, where it is for bytes.
pub(super) fn direction(call: &Syscall) -> Option<Direction> {
    match outside(call) {
        Outside::Input => Some(Direction::Input),
        Outside::Output => Some(Direction::Output),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_epoll() {
        let line = "tfd:        5 events:       19 data:                5  pos:0 ino:3d sdev:6";
        assert_eq!(in_epoll(line), Some(Awaited { number: 5, direction: Direction::Input }));
        let line = "tfd:        6 events: 80000004 data:                6";
        assert_eq!(in_epoll(line), Some(Awaited { number: 6, direction: Direction::Output }));
        assert_eq!(in_epoll("pos:\t0"), None);
        assert_eq!(in_epoll("tfd: x events: 1"), None);
    }
}
