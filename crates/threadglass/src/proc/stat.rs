//! `/proc/PID/task/TID/stat`.

use super::{decimal, signed, words};
use crate::Pid;
use crate::model::Policy;

/// The kernel's one-letter state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelState {
    /// `R`: on a CPU or queued for one. The kernel's own number for it is 0.
    #[default]
    Running,
    /// `S`: asleep, a signal wakes it. `I` (idle) and `P` (parked) kernel threads count here too.
    Sleeping,
    /// `D`: asleep, signals do not wake it (usually disk or network storage).
    DiskSleep,
    /// `T`: stopped by job control.
    Stopped,
    /// `t`: stopped by its tracer.
    Traced,
    /// `Z`: exited, not yet waited for.
    Zombie,
    /// `X`: being removed.
    Dead,
    /// A letter this version does not know.
    Other(u8),
}

impl KernelState {
    /// From the letter in `/proc`.
    pub fn from_letter(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' | b'I' | b'P' => Self::Sleeping,
            b'D' => Self::DiskSleep,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' => Self::Zombie,
            b'X' | b'x' => Self::Dead,
            other => Self::Other(other),
        }
    }

    /// Whether it is stopped, by job control or a tracer.
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped | Self::Traced)
    }

    /// Whether the task has ended (its record may linger).
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Zombie | Self::Dead)
    }
}

/// What is used of a `stat` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Task id, in the namespace of the `/proc` mount.
    pub tid: i32,
    /// The task's name, raw: any byte may occur in it.
    pub comm: Vec<u8>,
    /// State.
    pub state: KernelState,
    /// The process that made it, or that has inherited it since.
    pub parent: Pid,
    /// Task flags (`PF_*`).
    pub flags: u64,
    /// CPU time in user mode, in clock ticks.
    pub utime: u64,
    /// CPU time in the kernel, in clock ticks.
    pub stime: u64,
    /// The priority it runs at now: `20 + nice`, or `-1 - rt_priority`. Differs from what the next
    /// fields say while the thread inherits a waiter's priority.
    pub priority: i64,
    /// Nice value.
    pub nice: i64,
    /// Start time in ticks since boot: with the pid, the identity of the task.
    pub start_time: u64,
    /// Where the main thread's stack began; 0 when we may not know.
    pub start_stack: u64,
    /// The CPU it last ran on.
    pub processor: i64,
    /// Real-time priority, 0 unless the policy is real-time.
    pub rt_priority: u64,
    /// Policy.
    pub policy: Policy,
}

/// PF_EXITING: set before a task gives its memory up.
const PF_EXITING: u64 = 4;
/// PF_KTHREAD: a thread of the kernel, without user memory.
const PF_KTHREAD: u64 = 0x0020_0000;

impl Stat {
    /// Whether this is a thread of the kernel itself.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether it is about to end, or has ended.
    pub(crate) fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0
    }

    /// The priority `pthread_getschedparam` would report: 0 unless the policy is real-time.
    pub fn posix_priority(&self) -> i32 {
        if self.policy.is_realtime() { self.rt_priority as i32 } else { 0 }
    }

    /// Whether it runs at an inherited priority, better than its own.
    pub fn is_boosted(&self) -> bool {
        let own = match self.policy {
            Policy::Fifo | Policy::Rr => -1 - self.rt_priority as i64,
            Policy::Other | Policy::Batch | Policy::Idle | Policy::Ext => 20 + self.nice,
            Policy::Deadline | Policy::Unknown => return false,
        };
        self.priority < own
    }
}

/// Decodes one `stat` line; `None` when it is not one.
pub fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    // The name is in parentheses and may itself hold spaces and parentheses: the last one counts.
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let comm = bytes.get(open + 1..close)?.to_vec();
    let tid = i32::try_from(decimal(bytes.get(..open)?.trim_ascii())?).ok()?;
    let mut fields = words(bytes.get(close + 1..)?);
    // Numbers as in proc(5): field 3 is the first after the name.
    let mut next = 3;
    let mut field = |number: usize| {
        let skip = number - next;
        next = number + 1;
        fields.nth(skip)
    };
    Some(Stat {
        tid,
        comm,
        state: KernelState::from_letter(*field(3)?.first()?),
        parent: Pid(i32::try_from(decimal(field(4)?)?).ok()?),
        flags: decimal(field(9)?)?,
        utime: decimal(field(14)?)?,
        stime: decimal(field(15)?)?,
        priority: signed(field(18)?)?,
        nice: signed(field(19)?)?,
        start_time: decimal(field(22)?)?,
        start_stack: decimal(field(28)?)?,
        processor: signed(field(39)?)?,
        rt_priority: decimal(field(40)?)?,
        policy: Policy::from_number(decimal(field(41)?)?),
    })
}

/// Scheduler counters of one LWP (`/proc/../schedstat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedCounters {
    /// Nanoseconds on a CPU.
    pub run_ns: u64,
    /// Nanoseconds queued for one.
    pub delay_ns: u64,
    /// Times it got one.
    pub timeslices: u64,
}

/// Decodes one `schedstat` line; `None` when it is not one: that of an ended thread may be empty.
pub(crate) fn parse_schedstat(bytes: &[u8]) -> Option<SchedCounters> {
    let mut numbers = words(bytes).map_while(decimal);
    Some(SchedCounters { run_ns: numbers.next()?, delay_ns: numbers.next()?, timeslices: numbers.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"4711 (a (b) c) S 1 4711 4711 0 -1 4194560 100 0 0 0 7 9 0 0 20 0 3 0 12345 1 2 \
        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn names_may_hold_parentheses_and_spaces() {
        let stat = parse_stat(LINE).unwrap();
        assert_eq!((stat.tid, stat.comm.as_slice(), stat.state), (4711, &b"a (b) c"[..], KernelState::Sleeping));
        assert_eq!((stat.utime, stat.stime, stat.start_time, stat.processor), (7, 9, 12345, 1));
        assert!(!stat.is_boosted());
    }

    #[test]
    fn agrees_with_the_procfs_crate_on_this_process() {
        let bytes = std::fs::read("/proc/thread-self/stat").unwrap();
        let ours = parse_stat(&bytes).unwrap();
        let theirs: procfs::process::Stat = procfs::FromRead::from_read(bytes.as_slice()).unwrap();
        assert_eq!((ours.tid, ours.utime, ours.stime), (theirs.pid, theirs.utime, theirs.stime));
        assert_eq!((ours.priority, ours.nice, ours.start_time), (theirs.priority, theirs.nice, theirs.starttime));
        assert_eq!(Some(ours.rt_priority), theirs.rt_priority.map(u64::from));
        assert_eq!(Some(ours.processor), theirs.processor.map(i64::from));
    }

    #[test]
    fn a_boosted_thread_is_told_from_a_nice_one() {
        let mut stat = parse_stat(LINE).unwrap();
        stat.priority = -31;
        assert!(stat.is_boosted());
        stat.policy = Policy::Fifo;
        stat.rt_priority = 30;
        assert!(!stat.is_boosted());
        assert_eq!(stat.posix_priority(), 30);
    }
}
