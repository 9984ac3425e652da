//! The calls that the threads of all processes sleep in, from one pass inside the kernel.

use super::fields::{FieldOffsets, RECORD};
use super::record::TaskRecord;
use super::{permission, program, run};
use crate::proc::{KernelState, SyscallFile};
use crate::sys::bpf;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use std::collections::HashMap;

/// Below this many threads, `/proc` is read faster than a program is loaded.
const WORTHWHILE: usize = 2048;

/// Which call each thread of the machine sleeps in, of those that a signal would wake. `None` where that is not permitted or does
/// not pay. Threads that are not among them have to be asked for one by one.
pub(crate) fn calls_of_all() -> Option<HashMap<(Pid, Lwp), SyscallFile>> {
    if threads_of_all()? < WORTHWHILE || !permission::may_read_all() {
        return None;
    }
    let fields = FieldOffsets::find(&bpf::KernelTypes::open().ok()?)?;
    let program = bpf::load_iterator(&program::build(&fields), fields.function).ok()?;
    let link = bpf::attach_to_all(&program).ok()?;
    let mut calls = HashMap::new();
    run(&link, |bytes| {
        let (records, rest) = bytes.as_chunks::<RECORD>();
        calls.extend(records.iter().map(TaskRecord::decode).filter_map(|record| asleep(&record)));
        if rest.is_empty() { Ok(()) } else { Err(Errno::EPROTO) }
    })
    .ok()?;
    Some(calls)
}

fn asleep(record: &TaskRecord) -> Option<((Pid, Lwp), SyscallFile)> {
    let (state, call) = record.state_and_call()?;
    (state == KernelState::Sleeping).then_some(((record.process(), record.lwp()), call))
}

/// How many threads there are, those of the kernel among them: `0.12 0.10 0.09 1/345 6789`.
fn threads_of_all() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_syscall;
    use std::sync::mpsc::channel;

    /// It agrees with `/proc` of threads that sleep all the time.
    #[test]
    fn calls_are_those_of_proc() {
        let (stop, stopped) = channel::<()>();
        let stopped = std::sync::Mutex::new(stopped);
        std::thread::scope(|scope| {
            let _stop = stop;
            for _ in 0..WORTHWHILE {
                let wait = || stopped.lock().map(|stopped| stopped.recv()).is_ok();
                std::thread::Builder::new().stack_size(1 << 14).spawn_scoped(scope, wait).unwrap();
            }
            let me = Pid(std::process::id() as i32);
            if calls_of_all().is_none() {
                return testkit::skip("calls_are_those_of_proc", "the kernel does not run task iterators for us");
            }
            testkit::eventually("all that sleep should be told as /proc tells them", || {
                let found = calls_of_all().unwrap_or_default();
                let agrees = |entry: std::fs::DirEntry| {
                    let lwp = Lwp(entry.file_name().to_str()?.parse().ok()?);
                    let call = parse_syscall(&std::fs::read(entry.path().join("syscall")).ok()?)?;
                    (found.get(&(me, lwp)) == Some(&call)).then_some(())
                };
                let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
                tasks.filter_map(agrees).count() >= WORTHWHILE
            });
        });
    }
}
