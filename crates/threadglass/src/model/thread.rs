//! One thread.

use super::SyncKind;
use super::words::words;
use super::{CallSite, Evidence, Frame, Holds, OutsideWait, SignalSet, StackEnd, WaitsFor};
use crate::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};
use std::borrow::Cow;

words! {
    /// The states of `td_thr_state_e`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum ThreadState {
        // In the order of their numbers there (1 to 7), by which the C interface finds them.
        /// Cannot be told; a gap says why.
        #[default]
        Unknown = "unknown",
        /// Stopped by job control or suspended by a debugger, while not asleep.
        Stopped = "stopped",
        /// Runnable, but seen not to get a CPU.
        Run = "run",
        /// On a CPU, or not seen to be kept from one.
        Active = "active",
        /// Exited, not yet joined.
        Zombie = "zombie",
        /// Asleep in a system call.
        Sleep = "sleep",
        /// Stopped or suspended while asleep in a system call.
        StoppedAsleep = "stopped_asleep",
    }
}

/// What keeps a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum StopKind {
    /// Job control: SIGSTOP and the like.
    JobControl,
    /// A debugger, or another tracer.
    Traced,
    /// A suspension of ours.
    Suspended,
    /// A frozen control group.
    Frozen,
}

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Stop {
    /// What sort of stop.
    pub kind: StopKind,
    /// Name of the tracer; of a frozen group, the command that thaws it.
    pub by: Option<String>,
    /// Its pid, or that of its thread that traces.
    pub pid: Option<Pid>,
    /// Of job control: the signal, where the kernel tells that.
    pub signal: Option<String>,
    /// Of a job that has to wait until it gets the foreground of its terminal.
    pub background: Option<BackgroundJob>,
}

/// A job in the background of a terminal, which was stopped because it wanted to use that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct BackgroundJob {
    /// The terminal: `/dev/pts/3`.
    pub terminal: String,
    /// Whether it wanted to read from the terminal; else to write to it, or to change it.
    pub reads: bool,
    /// The processes that have its foreground.
    pub foreground: Vec<NamedProcess>,
    /// The leader of the session: mostly the shell that can give the foreground to the job.
    pub leader: Option<NamedProcess>,
}

/// A process with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct NamedProcess {
    /// Which.
    pub pid: Pid,
    /// Its name.
    pub name: Option<String>,
}

impl Stop {
    /// One of this sort, of which no more is known.
    pub(crate) fn new(kind: StopKind) -> Self {
        Self { kind, by: None, pid: None, signal: None, background: None }
    }

    /// In words: `stopped by the debugger gdb (pid 4711)`.
    pub fn text(&self) -> String {
        match (self.kind, &self.by, self.pid) {
            (StopKind::JobControl, ..) => match &self.signal {
                Some(signal) => format!("stopped by job control ({signal})"),
                None => "stopped by job control".to_owned(),
            },
            (StopKind::Traced, Some(name), Some(pid)) => format!("stopped by the debugger {name} (pid {pid})"),
            (StopKind::Traced, ..) => "stopped by a debugger".to_owned(),
            (StopKind::Suspended, _, Some(pid)) => format!("suspended by process {pid}"),
            (StopKind::Suspended, ..) => "suspended".to_owned(),
            (StopKind::Frozen, ..) => "frozen with the control group".to_owned(),
        }
    }
}

/// Who made the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum ThreadType {
    /// The program.
    User,
    /// libc for its own purposes (its start function lies in libc), or the agent.
    System,
}

/// Scheduling policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Policy {
    /// SCHED_OTHER
    Other,
    /// SCHED_FIFO
    Fifo,
    /// SCHED_RR
    Rr,
    /// SCHED_BATCH
    Batch,
    /// SCHED_IDLE
    Idle,
    /// SCHED_DEADLINE
    Deadline,
    /// SCHED_EXT
    Ext,
    /// A number this version does not know.
    #[default]
    Unknown,
}

impl Policy {
    /// From the number the kernel has for it.
    pub(crate) fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Other,
            1 => Self::Fifo,
            2 => Self::Rr,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            _ => Self::Unknown,
        }
    }

    /// Whether the policy has fixed (real-time) priorities.
    pub fn is_realtime(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }
}

/// The system call a thread is in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Syscall {
    /// Its number.
    pub number: i64,
    /// Its name, or `syscall_N` where this version does not know it.
    pub name: Cow<'static, str>,
    /// The six argument registers; those the call does not use hold leftovers.
    #[cfg_attr(feature = "serde", serde(with = "addresses"), schemars(with = "[RemoteAddr; 6]"))]
    pub args: [u64; 6],
    /// The file descriptors that it waits for, where it takes some. Of very many the first ones.
    pub descriptors: Vec<Descriptor>,
}

/// A file descriptor of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What it leads to, as the kernel names it: a path, `pipe:[123]`, `socket:[456]`; `None` where that cannot be seen.
    pub file: Option<String>,
}

/// A wait in a loop that does nothing else than read a word again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Spin {
    /// Whether it yields the CPU in between.
    pub yields: bool,
    /// Whether it sleeps for a time in between.
    pub sleeps: bool,
    /// The word that it reads again and again.
    pub word: Option<RemoteAddr>,
    /// A name for the word.
    pub name: Option<String>,
    /// What the word is of, where the loop tries to take a lock of libc.
    pub kind: Option<SyncKind>,
    /// The thread that holds that lock.
    pub held_by: Option<Lwp>,
}

/// A running thread that was watched for a moment by samples of its CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Watched {
    /// Samples taken.
    pub samples: u32,
    /// How many of them were where its frames say.
    pub here: u32,
    /// What it waits for, if it spins.
    pub spins: Option<Spin>,
}

/// Numbers that are written as addresses.
#[cfg(feature = "serde")]
mod addresses {
    use crate::RemoteAddr;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(numbers: &[u64; 6], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(numbers.map(RemoteAddr))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; 6], D::Error> {
        <[RemoteAddr; 6]>::deserialize(deserializer).map(|addresses| addresses.map(|address| address.0))
    }
}

/// A thread's stack, as `pthread_getattr_np` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Stack {
    /// The **highest** address (one past the last byte), where the stack begins.
    pub base: RemoteAddr,
    /// Bytes below it that are stack, without the guard.
    pub size: u64,
    /// Bytes of guard below that.
    pub guard: u64,
}

/// CPU time used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Cpu {
    /// In user mode, in milliseconds (the kernel counts these in steps of 10).
    pub user_ms: u64,
    /// In the kernel.
    pub system_ms: u64,
}

/// One thread of the target.
///
/// `None` means that it could not be told (the snapshot's gaps say why) or does not exist for this
/// thread: the main thread has no start function of its own, a zombie has no LWP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Thread {
    /// Its `pthread_t`.
    pub id: Option<PthreadId>,
    /// Its LWP.
    pub lwp: Option<Lwp>,
    /// Its LWP as the target itself sees it (differs in a pid namespace).
    pub inner_lwp: Option<InnerTid>,
    /// Its name. Bytes that are not UTF-8 appear as U+FFFD.
    pub name: Option<String>,
    /// Its state.
    pub state: ThreadState,
    /// How the state is known.
    pub state_evidence: Evidence,
    /// What keeps it stopped, also where the state is what it did before that.
    pub stop: Option<Stop>,
    /// Who made it.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: Option<ThreadType>,
    /// Whether it is detached.
    pub detached: Option<bool>,
    /// The creation flags as `td_thrinfo_t` has them: 0x40 when detached, else 0.
    pub user_flags: Option<u32>,
    /// Whether it has begun to exit while its LWP still lives.
    pub exiting: bool,
    /// Whether a `tglass suspend` or `td_thr_dbsuspend` holds it.
    pub db_suspended: bool,
    /// Priority as `pthread_getschedparam` tells it: 0 unless the policy is real-time.
    pub priority: Option<i32>,
    /// Scheduling policy.
    pub policy: Option<Policy>,
    /// Nice value.
    pub nice: Option<i32>,
    /// Whether it runs at a priority inherited from a waiter.
    pub inherited_priority: Option<bool>,
    /// Whether the CPU was taken from it when it last ran.
    pub preempted: Option<bool>,
    /// Program counter, of a thread that is asleep or stopped.
    pub pc: Option<RemoteAddr>,
    /// Stack pointer, likewise.
    pub sp: Option<RemoteAddr>,
    /// Address of its start function.
    pub start: Option<RemoteAddr>,
    /// Name of the function there.
    pub start_function: Option<String>,
    /// Its stack.
    pub stack: Option<Stack>,
    /// Size of its descriptor, which starts at `id`.
    pub descriptor_size: Option<u64>,
    /// libc's own flags for it (cancellation and exit bits).
    pub flags: Option<u32>,
    /// Address of its thread-specific data pointers.
    pub specific: Option<RemoteAddr>,
    /// Blocked signals.
    pub signal_mask: Option<SignalSet>,
    /// Signals pending for this thread alone.
    pub pending: Option<SignalSet>,
    /// The system call it is in.
    pub syscall: Option<Syscall>,
    /// The synchronization object it waits for, where these were looked for.
    pub waits_for: Option<WaitsFor>,
    /// Where its wait leads that leaves the process, where that was looked for.
    pub waits_outside: Option<Box<OutsideWait>>,
    /// What it holds, as far as that is known.
    pub holds: Vec<Holds>,
    /// CPU time.
    pub cpu: Option<Cpu>,
    /// Whether event reporting is on for it.
    pub traced_events: Option<bool>,
    /// Its event mask (two words).
    pub events: Option<[u32; 2]>,
    /// Its stack, the innermost frame first; empty unless asked for, or where a gap says why.
    pub frames: Vec<Frame>,
    /// Why the stack ends where it does; `None` when it was not read.
    pub frames_end: Option<StackEnd>,
    /// Of a thread that runs: its frames are those of the place where samples found it most often.
    pub watched: Option<Box<Watched>>,
    /// Of a thread that sleeps for a time, again and again, until a word changes: that word.
    pub polls: Option<Box<Spin>>,
    /// Of a thread blocked in libc whose stack was read: which function of libc its program called.
    pub call_site: Option<CallSite>,
}

impl Thread {
    /// What the thread reads again and again, with a CPU or with sleeps in between.
    pub fn spin(&self) -> Option<&Spin> {
        self.watched.as_ref().and_then(|watched| watched.spins.as_ref()).or(self.polls.as_deref())
    }
}
