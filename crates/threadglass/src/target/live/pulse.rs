//! The pulse of processes: how often each thread has been on a CPU, and what it is in. So little is read that it can be read
//! always: of a thread that has not run since the last reading, one short file.

use super::{TaskReader, list_tasks};
use crate::proc::{KernelState, SchedCounters, SyscallFile, parse_schedstat, parse_status, parse_syscall};
use crate::sys::file;
use crate::{Lwp, Pid};

/// Of the threads that have not run since, one in so many is read again at each reading: one that was woken and gets no CPU has not
/// run, either.
const AGAIN: u64 = 4;

/// What was read of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPulse {
    pub(crate) lwp: Lwp,
    pub(crate) counters: SchedCounters,
    pub(crate) state: KernelState,
    /// What it is blocked in, where that may be read.
    pub(crate) call: Option<SyscallFile>,
}

impl ThreadPulse {
    /// Whether the thread has not been on a CPU since `before`.
    pub(crate) fn is_still_since(&self, before: &Self) -> bool {
        let runs = |pulse: &Self| (pulse.counters.run_ns, pulse.counters.timeslices);
        runs(self) == runs(before)
    }
}

/// What was read of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessPulse {
    /// The name of its main thread.
    pub(crate) name: String,
    /// When it was started, in ticks since the machine was: with the pid, its identity.
    pub(crate) start_time: u64,
    /// Its threads, in the order of their numbers.
    pub(crate) threads: Vec<ThreadPulse>,
    /// Whether what threads are blocked in may not be read.
    pub(crate) is_denied: bool,
}

/// Which process has the number `pid`: the name of its main thread, and when it was started. `None` where there is none, or one of
/// the kernel.
pub(crate) fn name_and_start(pid: Pid) -> Option<(String, u64)> {
    let dir = file::open_dir(format!("/proc/{pid}/task").as_ref()).ok()?;
    let leader = TaskReader::new(&dir).stat(pid.leader())?;
    (!leader.is_kernel_thread()).then(|| (String::from_utf8_lossy(&leader.comm).into_owned(), leader.start_time))
}

/// Whether a process is to be read, of which its name is told and when it was started.
pub(crate) type Wanted<'a> = &'a mut dyn FnMut(&str, u64) -> bool;

/// Reads the pulse of all threads of a process, if it is wanted. `before` gives what was read of a thread the last time, of the
/// process that was started then; `round` is the number of the reading. `None` where it is not wanted, has ended, or is one of the
/// kernel.
pub(crate) fn pulse(
    pid: Pid,
    round: u64,
    wanted: Wanted<'_>,
    before: &dyn Fn(u64, Lwp) -> Option<ThreadPulse>,
) -> Option<ProcessPulse> {
    let dir = file::open_dir(format!("/proc/{pid}/task").as_ref()).ok()?;
    let mut reader = TaskReader::new(&dir);
    let leader = reader.stat(pid.leader())?;
    if leader.is_kernel_thread() {
        return None;
    }
    let name = String::from_utf8_lossy(&leader.comm).into_owned();
    if !wanted(&name, leader.start_time) {
        return None;
    }
    let mut found = ProcessPulse { name, start_time: leader.start_time, ..ProcessPulse::default() };
    let mut lwps = list_tasks(&dir).ok()?;
    lwps.sort_unstable();
    for lwp in lwps {
        let Some(counters) = counters(&mut reader, lwp) else { continue };
        let known = before(leader.start_time, lwp).filter(|before| {
            let now = ThreadPulse { counters, ..*before };
            now.is_still_since(before)
                && before.state != KernelState::Running
                && !(lwp.0 as u64).wrapping_add(round).is_multiple_of(AGAIN)
        });
        if let Some(before) = known {
            // It was asleep, and what it is in could not be read then, either.
            found.is_denied |= before.call.is_none() && !before.state.is_stopped();
            found.threads.push(ThreadPulse { counters, ..before });
            continue;
        }
        let Some(state) = reader.stat(lwp).map(|stat| stat.state) else { continue };
        if state.has_ended() {
            continue;
        }
        let call = match (state, reader.read(lwp, "syscall")) {
            // It may have gone on since; then it has run.
            (KernelState::Running, _) => None,
            (_, Ok(bytes)) => parse_syscall(bytes),
            (_, Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ESRCH)) => continue,
            (_, Err(_)) => {
                found.is_denied = true;
                None
            }
        };
        found.threads.push(ThreadPulse { lwp, counters, state, call });
    }
    (!found.threads.is_empty()).then_some(found)
}

/// How often a thread has run. A kernel that does not count that counts at least its switches.
fn counters(reader: &mut TaskReader<'_>, lwp: Lwp) -> Option<SchedCounters> {
    let read = reader.read(lwp, "schedstat").ok().and_then(parse_schedstat);
    if let Some(counters) = read.filter(|counters| counters.timeslices > 0 || counters.delay_ns > 0) {
        return Some(counters);
    }
    let status = parse_status(reader.read(lwp, "status").ok()?)?;
    let timeslices = status.voluntary_switches.wrapping_add(status.involuntary_switches);
    Some(SchedCounters { run_ns: 0, delay_ns: 0, timeslices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_sleeps_is_still_and_one_that_was_woken_is_not() {
        let (send, receive) = channel::<()>();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            receive.recv().unwrap();
            tell.send(0).unwrap();
            receive.recv().unwrap();
        });
        let lwp = Lwp(told.recv().unwrap());
        let read = |known: &HashMap<Lwp, ThreadPulse>| {
            let pulse =
                pulse(Pid::me(), 0, &mut |_, _| true, &|_, lwp| known.get(&lwp).copied()).expect("we are there");
            pulse.threads.into_iter().map(|thread| (thread.lwp, thread)).collect::<HashMap<_, _>>()
        };
        let mut before = HashMap::new();
        testkit::eventually("it should fall asleep", || {
            before = read(&HashMap::new());
            before
                .get(&lwp)
                .is_some_and(|it| it.state == KernelState::Sleeping && it.call.is_some_and(|call| call.is_futex()))
        });
        let again = read(&before);
        assert!(again[&lwp].is_still_since(&before[&lwp]));
        assert_eq!(again[&lwp].call, before[&lwp].call);
        send.send(()).unwrap();
        told.recv().unwrap();
        testkit::eventually("it should have run", || !read(&again)[&lwp].is_still_since(&before[&lwp]));
        send.send(()).unwrap();
        thread.join().unwrap();
        assert!(!read(&again).contains_key(&lwp), "it has ended");
    }

    #[test]
    fn nobody_has_no_pulse() {
        assert!(pulse(Pid(i32::MAX), 0, &mut |_, _| true, &|_, _| None).is_none() && name_and_start(Pid(0)).is_none());
        let (_, start) = name_and_start(Pid::me()).expect("we are there");
        assert!(start > 0);
    }
}
