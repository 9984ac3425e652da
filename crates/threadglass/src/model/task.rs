//! Tasks: what a runtime of its own schedules on threads, such as a goroutine.

use super::words::{Word, words};
use super::{Direction, Evidence, Frame, OutsideWait, Side, Stack, StackEnd, SyncKind, ThreadState, ThreadType};
use crate::{Lwp, RemoteAddr};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Text that many tasks share: the name of a function, the reason of a wait.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(schemars::JsonSchema))]
pub struct SharedText(#[cfg_attr(feature = "serde", schemars(with = "String"))] Arc<str>);

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SharedText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SharedText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// A frame that many tasks share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(schemars::JsonSchema))]
pub struct SharedFrame(#[cfg_attr(feature = "serde", schemars(with = "Frame"))] Arc<Frame>);

impl From<Frame> for SharedFrame {
    fn from(frame: Frame) -> Self {
        Self(Arc::new(frame))
    }
}

impl Deref for SharedFrame {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.0
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SharedFrame {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SharedFrame {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Frame::deserialize(deserializer).map(Self::from)
    }
}

/// Frames that many tasks share, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(schemars::JsonSchema))]
pub struct SharedFrames(#[cfg_attr(feature = "serde", schemars(with = "Vec<Frame>"))] Option<Arc<[Frame]>>);

impl From<Vec<Frame>> for SharedFrames {
    fn from(frames: Vec<Frame>) -> Self {
        Self((!frames.is_empty()).then(|| frames.into()))
    }
}

impl Deref for SharedFrames {
    type Target = [Frame];

    fn deref(&self) -> &[Frame] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl SharedFrames {
    /// A number that is the same for clones, and costs nothing to compare.
    pub fn identity(&self) -> usize {
        self.0.as_ref().map_or(0, |frames| frames.as_ptr().addr())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SharedFrames {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SharedFrames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Frame>::deserialize(deserializer).map(Self::from)
    }
}

words! {
    /// What a task wants of a channel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(rename_all = "snake_case"))]
    pub enum ChannelUse {
        /// To take a value out.
        Receive = "receive",
        /// To put a value in.
        Send = "send",
    }
}

/// An object that a task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskWaitsFor {
    /// The object's address.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Of a rwlock: what the task wants.
    pub side: Option<Side>,
    /// Of a channel: what the task wants.
    pub channel_use: Option<ChannelUse>,
    /// Ids of tasks that hold it, as far as they are known.
    pub held_by: Vec<u64>,
    /// Of what nobody holds (a channel, a condition variable, a group of tasks): ids of tasks whose code leads to what would end
    /// the wait.
    pub woken_by: Vec<u64>,
    /// How it is known that the task waits for this object.
    pub evidence: Evidence,
}

/// A task that waits for an object, or holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskRef {
    /// The number that its runtime has for it.
    pub task: u64,
    /// Of a rwlock: how.
    pub side: Option<Side>,
    /// Of a channel: what it wants.
    pub channel_use: Option<ChannelUse>,
    /// How it is known.
    pub evidence: Evidence,
    /// What leads to it, where it is inferred.
    pub why: Option<String>,
}

/// The wait of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskWait {
    /// Why it waits, in the words of its runtime: `chan receive`.
    pub reason: SharedText,
    /// What it waits for; a select waits for several at once. Empty where that is no object, or was not looked for.
    pub objects: Vec<TaskWaitsFor>,
    /// The descriptor whose input or output it waits for.
    pub descriptor: Option<u32>,
    /// Which of both.
    pub direction: Option<Direction>,
    /// What is at that descriptor, and which processes have the other end.
    pub outside: Option<Box<OutsideWait>>,
    /// How long it has waited, at least, in milliseconds, where the runtime has noted that.
    pub since_ms: Option<u64>,
    /// Whether the wait ends by itself.
    pub timed: bool,
    /// Whether nobody can ever end it: a receive from no channel, a select without cases.
    pub for_ever: bool,
}

impl TaskWait {
    /// A wait of which no more is known.
    pub(crate) fn new(reason: SharedText) -> Self {
        let (objects, descriptor, direction, outside, since_ms, timed, for_ever) = Default::default();
        Self { reason, objects, descriptor, direction, outside, since_ms, timed, for_ever }
    }
}

/// A lock that a task holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskHolds {
    /// The object's address.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// Of a rwlock: how.
    pub side: Option<Side>,
    /// How it is known.
    pub evidence: Evidence,
    /// Whether the lock was given to a future of the task that the task does not poll.
    pub unpolled: bool,
    /// Whether the lock is one that threads block on, and not tasks.
    pub blocks_threads: bool,
}

/// One task. `None` means that it could not be told, or does not exist for this task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Task {
    /// The runtime that it is of: `Go`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub runtime: Word,
    /// The number that the runtime has for it.
    pub id: u64,
    /// Who made it: the program, or the runtime for its own purposes.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: ThreadType,
    /// Its state: `run` is runnable without a thread, `active` on one.
    pub state: ThreadState,
    /// The state in the words of its runtime.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub status: Word,
    /// The thread that runs it now.
    pub carried_by: Option<Lwp>,
    /// The only thread that may run it.
    pub bound_to: Option<Lwp>,
    /// What distributes it to threads: a runtime of tokio, or a LocalSet.
    pub scheduler: Option<RemoteAddr>,
    /// What it waits for.
    pub wait: Option<TaskWait>,
    /// Locks that it holds, as far as that is known.
    pub holds: Vec<TaskHolds>,
    /// The task that made it.
    pub parent: Option<u64>,
    /// Where it was made.
    pub created_by: Option<SharedFrame>,
    /// Address of its start function.
    pub start: Option<RemoteAddr>,
    /// Name of the function there.
    pub start_function: Option<SharedText>,
    /// Labels that the program has given it.
    pub labels: BTreeMap<String, String>,
    /// Where its runtime keeps it.
    pub address: RemoteAddr,
    /// Program counter, of a task that is not running.
    pub pc: Option<RemoteAddr>,
    /// Stack pointer, likewise.
    pub sp: Option<RemoteAddr>,
    /// Frame pointer, likewise, where the runtime has saved that.
    pub fp: Option<RemoteAddr>,
    /// Where its stack is, of a task that has one.
    pub stack: Option<Stack>,
    /// Its stack, or the chain of what it awaits, the innermost first; empty unless asked for, or where a gap says why.
    pub frames: SharedFrames,
    /// Why the frames end where they do; `None` when they were not read.
    pub frames_end: Option<StackEnd>,
}

/// Tasks with the same stack that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskGroup {
    /// The runtime that they are of.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub runtime: Word,
    /// Their ids.
    pub tasks: Vec<u64>,
    /// Who made them.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: ThreadType,
    /// Their state.
    pub state: ThreadState,
    /// Why they wait, in the words of their runtime.
    pub reason: Option<SharedText>,
    /// How long the one that waits longest has waited, at least, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// Where the first of them was made.
    pub created_by: Option<SharedFrame>,
    /// Their stack, the innermost frame first.
    pub frames: SharedFrames,
    /// Why the stack ends where it does; `None` where there is none.
    pub frames_end: Option<StackEnd>,
}

/// What distributes tasks to threads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskScheduler {
    /// Where it is.
    pub address: RemoteAddr,
    /// How many of its tasks may run at one time.
    pub concurrency: Option<u64>,
}

/// What a runtime of tasks has to run them with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TaskRuntimeInfo {
    /// The runtime: `Go`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub name: Word,
    /// Its version, where the program tells it.
    pub version: Option<String>,
    /// How many tasks may run at one time: GOMAXPROCS, worker threads.
    pub concurrency: Option<u64>,
    /// What distributes tasks to threads, where there may be several of them.
    pub schedulers: Vec<TaskScheduler>,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that could run and have no thread.
    pub runnable: u64,
    /// Tasks that wait.
    pub waiting: u64,
}
