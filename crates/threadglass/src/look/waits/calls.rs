//! What a thread waits for in a system call that is none of a lock.

use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::{Descriptor, OutsideKind, Syscall, Thread};
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
    /// An array of `struct pollfd`.
    Poll,
    /// Three sets of bits.
    Select,
}

/// What the calls that block for long wait for, how they take descriptors, and what a thread in one is doing.
fn known(name: &str) -> (Outside, Takes, &'static str) {
    use Outside::{Child, Events, FileLock, Input, Other, Output, Signal, Timer, Word};
    match name {
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => (Events, Takes::One, "waiting for events"),
        "poll" | "ppoll" => (Events, Takes::Poll, "waiting for events"),
        "select" | "pselect6" => (Events, Takes::Select, "waiting for events"),
        "io_uring_enter" | "io_getevents" | "io_pgetevents" => (Events, Takes::One, "waiting for completions"),
        "accept" | "accept4" => (Events, Takes::One, "waiting for a connection"),
        "nanosleep" | "clock_nanosleep" => (Timer, Takes::Nothing, "sleeping for a time"),
        // A call with a time limit that a stop or a debugger interrupted, and which goes on.
        "restart_syscall" => (Timer, Takes::Nothing, "waiting with a time limit"),
        "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => (Signal, Takes::Nothing, "waiting for a signal"),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "getdents64" => (Input, Takes::One, "reading"),
        "recvfrom" | "recvmsg" | "recvmmsg" => (Input, Takes::One, "receiving"),
        "mq_timedreceive" => (Input, Takes::One, "receiving"),
        "msgrcv" => (Input, Takes::Nothing, "receiving from a System V queue"),
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "sendfile" | "splice" => {
            (Output, Takes::One, "writing")
        }
        "sendto" | "sendmsg" | "sendmmsg" | "mq_timedsend" => (Output, Takes::One, "sending"),
        "msgsnd" => (Output, Takes::Nothing, "sending to a System V queue"),
        "connect" => (Output, Takes::One, "connecting"),
        "fsync" | "fdatasync" | "sync_file_range" => (Output, Takes::One, "waiting for the disk"),
        "wait4" | "waitid" => (Child, Takes::Nothing, "waiting for a child process"),
        "vfork" => (Child, Takes::Nothing, "waiting for its vfork child"),
        "flock" => (FileLock, Takes::One, "waiting for a file lock"),
        "fcntl" => (FileLock, Takes::One, "waiting in fcntl, as for a file lock"),
        "open" | "openat" | "openat2" => (Other, Takes::Nothing, "opening a file"),
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

/// What a thread in `call` waits for outside of the process; `None` for a word in memory, and where it is not known.
pub(super) fn kind_of(call: &Syscall) -> Option<OutsideKind> {
    const SET_LOCK_AND_WAIT: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];
    let file = call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    let of_file = |file: &str| match file {
        _ if file.starts_with("pipe:") => OutsideKind::Pipe,
        _ if file.starts_with("socket:") => OutsideKind::Socket,
        _ if ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|name| file.starts_with(name)) => {
            OutsideKind::Terminal
        }
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
        (Outside::Word | Outside::Other, _) => return None,
    })
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
        Takes::Poll => {
            let mut bytes = vec![0; 8 * call.args[1].min(MOST) as usize];
            if memory.read_exact(RemoteAddr(call.args[0]), &mut bytes).is_err() {
                return Vec::new();
            }
            let number = |entry: &[u8; 8]| i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            bytes.as_chunks().0.iter().map(number).filter(|number| *number >= 0).collect()
        }
        // The kernel writes its answer into the sets only when it returns.
        Takes::Select => {
            let most = call.args[0].min(MOST) as usize;
            let mut wanted = vec![0u8; most.div_ceil(64) * 8];
            for set in call.args[1..4].iter().filter(|set| **set != 0) {
                let mut bytes = vec![0; wanted.len()];
                if memory.read_exact(RemoteAddr(*set), &mut bytes).is_ok() {
                    wanted.iter_mut().zip(bytes).for_each(|(wanted, byte)| *wanted |= byte);
                }
            }
            (0..most).filter(|number| wanted[number / 8] >> (number % 8) & 1 == 1).map(|number| number as i32).collect()
        }
    }
}
