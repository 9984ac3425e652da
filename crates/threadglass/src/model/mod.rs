//! The plain data that every face prints: what was seen, how it is known, and what is missing.

mod contention;
mod evidence;
mod finding;
mod frame;
mod snapshot;
mod stats;
mod sync;
mod sync_stats;
mod thread;
mod tsd;

pub use contention::{Contended, ContentionReport, InjectionReport, Sampled};
pub use evidence::{Evidence, Gap};
pub use finding::{Certainty, Finding, FindingKind};
pub use frame::{CallSite, Frame, StackEnd};
pub use snapshot::{CoreInfo, CoreWriter, Libc, SCHEMA, Snapshot, TargetInfo};
pub use stats::{ProcessStats, Stats, ThreadStats};
pub use sync::{
    Detail, Family, Holder, HolderStatus, Holds, MutexProtocol, MutexType, Preference, Side, SyncKind, SyncObject,
    SyncState, Waiter, WaitsFor,
};
pub use sync_stats::{
    BarrierStats, CondStats, Contention, HoldTime, LockStats, RwlockStats, SemaphoreStats, SideStats, SyncStats,
    WaitSite,
};
pub use thread::{Cpu, Stack, Syscall, Thread, ThreadState, ThreadType};
pub use tsd::{KeyInfo, ThreadValues, TsdSnapshot};
