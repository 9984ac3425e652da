//! Making sleeping threads look again.
//!
//! A stop takes a thread out of its system call, and when it goes on the kernel begins a futex wait anew, silently,
//! with its deadline if it has one. All of this happens on the calling thread: a tracee belongs to the thread
//! that seized it.

use crate::act::{ControlError, StoppedThread};
use crate::model::NotKicked;
use crate::{Lwp, Pid};
use std::time::Duration;

/// Threads that are held at the same time, at most; the rest is kicked one by one. Stopping one takes 100 to 300
/// microseconds, so the first of these stands still for some milliseconds.
const MAX_HELD: usize = 32;

/// What came of kicking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kicked {
    /// Those that were stopped and let go.
    pub kicked: Vec<Lwp>,
    /// Those that were not. A debugger that traces one kicks it whenever it lets it go on.
    pub not_kicked: Vec<NotKicked>,
    /// Threads in system calls that return EINTR because of it, with the call's number.
    pub interrupted: Vec<(Lwp, i64)>,
    /// For how long threads were stopped: the sum over all of them.
    pub total: Duration,
    /// For how long any one was, at most.
    pub longest: Duration,
}

impl Kicked {
    /// Adds what came of kicking more threads.
    pub fn add(&mut self, other: Self) {
        self.kicked.extend(other.kicked);
        self.not_kicked.extend(other.not_kicked);
        self.interrupted.extend(other.interrupted);
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// **Stops** a thread, if that can be done.
    fn stop(&mut self, (pid, lwp): (Pid, Lwp)) -> Option<StoppedThread> {
        stop(pid, lwp).map_err(|why| self.not_kicked.push(NotKicked { pid, lwp, why })).ok()
    }

    fn let_go(&mut self, thread: StoppedThread) {
        let started = thread.asked();
        self.kicked.push(thread.lwp());
        self.interrupted.extend(thread.visible_interruption().map(|call| (thread.lwp(), call)));
        drop(thread);
        let pause = started.elapsed();
        self.total += pause;
        self.longest = self.longest.max(pause);
    }

    /// **Stops** each of `threads` for a moment, one after the other.
    fn kick(mut self, threads: &[(Pid, Lwp)]) -> Self {
        for thread in threads {
            if let Some(stopped) = self.stop(*thread) {
                self.let_go(stopped);
            }
        }
        self
    }
}

/// **Stops** `threads`, the first of them at least, while `act` runs, which is given those that could not be stopped.
/// Then each begins its system call anew; those that were too many to hold are kicked. What stands still goes on also if
/// our process ends.
pub(super) fn hold<R>(threads: &[(Pid, Lwp)], act: impl FnOnce(&[NotKicked]) -> R) -> (R, Kicked) {
    let (now, later) = threads.split_at(threads.len().min(MAX_HELD));
    let mut report = Kicked::default();
    let held: Vec<_> = now.iter().filter_map(|thread| report.stop(*thread)).collect();
    let result = act(&report.not_kicked);
    held.into_iter().for_each(|thread| report.let_go(thread));
    (result, report.kick(later))
}

/// **Stops** each of the threads `lwps` of `pid` for a moment, one after the other.
pub fn kick(pid: Pid, lwps: &[Lwp]) -> Kicked {
    Kicked::default().kick(&lwps.iter().map(|lwp| (pid, *lwp)).collect::<Vec<_>>())
}

fn stop(pid: Pid, lwp: Lwp) -> Result<StoppedThread, String> {
    // It would not stop before its device answers, and everybody else would stand still meanwhile.
    let stat = std::fs::read(format!("/proc/{pid}/task/{lwp}/stat")).unwrap_or_default();
    let state = crate::proc::parse_stat(&stat).map(|stat| stat.state);
    if state == Some(crate::proc::KernelState::DiskSleep) {
        return Err("it is in an uninterruptible sleep".to_owned());
    }
    StoppedThread::stop(pid, lwp).map_err(|error| match error {
        ControlError::NoThread(..) => "it has ended".to_owned(),
        ControlError::Traced(_, tracer) => format!("{tracer} traces it"),
        ControlError::Denied(_) => "not permitted".to_owned(),
        ControlError::Filtered(_, danger) => format!("its seccomp filters might kill the thread: {danger}"),
        ControlError::Frozen(_, thaw) => format!("its control group is frozen ({thaw})"),
        ControlError::System(_, errno) => errno.desc().to_owned(),
    })
}
