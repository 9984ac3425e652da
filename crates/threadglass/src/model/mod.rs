//! The plain data that every face prints: what was seen, how it is known, and what is missing.

mod contention;
mod diff;
mod doctor;
mod evidence;
pub mod filter;
mod finding;
mod frame;
mod language;
mod machine;
mod outside;
mod profile;
mod remedy;
mod set_plan;
mod signals;
mod snapshot;
mod stats;
mod sync;
mod sync_stats;
mod task;
pub mod terminal;
mod thread;
mod tsd;
mod verdict;
mod watch;
mod words;

pub use contention::{Contended, ContentionReport, HeldIn, HolderDid, InjectionReport, Sampled, WaitStack};
pub use diff::{
    DiffSide, FindingChange, FindingDiff, LockChange, LockDiff, LockUse, SnapshotDiff, TaskChange, TaskDiff, TaskPlace,
    ThreadChange, ThreadDiff, ThreadPlace,
};
pub use doctor::{Check, CheckVerdict, Doctor};
pub use evidence::{Evidence, Gap};
pub use finding::{Certainty, Finding, FindingKind, Member};
pub use frame::{CallSite, Frame, StackEnd};
pub use language::LanguageRuntime;
pub use machine::{Machine, ProcessToSee};
pub use outside::{Direction, OutsideKind, OutsideWait, Partner, Stranger};
pub use profile::{
    FunctionShare, Histogram, HolderShare, Mapped, Profile, ProfileClock, ProfileEnd, ProfileKind, ProfiledProcess,
    RangeShare, StackShare, WaitShare,
};
pub use remedy::Remedy;
pub use set_plan::{NotKicked, SetDone, SetPlan, SetReport, UndoDone, UndoReport, WordWrite};
pub use signals::{SignalSet, signal_name, signal_number};
pub use snapshot::{CoreInfo, CoreWriter, Libc, Provenance, SCHEMA, Snapshot, SnapshotFile, TargetInfo};
pub use stats::{ProcessStats, Stats, ThreadStats};
pub use sync::{
    Detail, Family, Holder, HolderStatus, Holds, MutexProtocol, MutexType, Preference, Side, SyncKind, SyncObject,
    SyncState, Waiter, WaitsFor,
};
pub use sync_stats::{
    BarrierStats, CondStats, Contention, HoldTime, LockStats, RwlockStats, SemaphoreStats, SideStats, SyncStats,
    WaitBucket, WaitSite,
};
pub use task::{
    ChannelUse, SharedFrame, SharedFrames, SharedText, Task, TaskGroup, TaskHolds, TaskRef, TaskRuntimeInfo,
    TaskScheduler, TaskWait, TaskWaitsFor,
};
pub use thread::{
    BackgroundJob, Cpu, Descriptor, NamedProcess, Policy, Spin, Stack, Stop, StopKind, Syscall, Thread, ThreadState,
    ThreadType, Watched,
};
pub use tsd::{KeyInfo, ThreadValues, TsdSnapshot, TsdValue};
pub use verdict::{Verdict, VerdictKind, WaitGroup};
pub use watch::{
    LockWaits, ProcessFigures, RestartHelps, ThreadStates, TroubleKind, WatchEvent, WatchEventKind, WatchFigures,
    WatchedProcess,
};
