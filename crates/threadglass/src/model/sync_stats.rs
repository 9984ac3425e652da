//! What was counted of an object by the agent inside the program. `thread_db.h` says what each member is.
#![allow(missing_docs)]

use super::SyncKind;
use crate::{InnerTid, RemoteAddr};

/// The numbers of an object, by its kind. Times are nanoseconds. Counters of 32 bits stay at their largest value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema), serde(untagged))]
pub enum SyncStats {
    /// Of a mutex or spinlock.
    Lock(LockStats),
    /// Of a condition variable.
    Cond(CondStats),
    /// Of a rwlock.
    Rwlock(RwlockStats),
    /// Of a semaphore.
    Semaphore(SemaphoreStats),
    /// Of a barrier.
    Barrier(BarrierStats),
}

/// How long something was held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct HoldTime {
    /// In all; a hold in progress is not included.
    pub total_ns: u64,
    /// Whether that is an estimate, because only some holds were timed.
    pub estimated: bool,
    /// How many were timed.
    pub timed: u32,
}

/// Statistics of a mutex or spinlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct LockStats {
    /// Acquisitions of every sort, but not of what the thread held already.
    pub lock: u64,
    /// Calls that found it taken and waited.
    pub sleep: u32,
    pub sleep_time_ns: u64,
    pub hold_time: HoldTime,
    #[cfg_attr(feature = "serde", serde(rename = "try"))]
    pub try_: u32,
    pub try_fail: u32,
    /// The thread that acquired it last.
    pub last: Option<InnerTid>,
    pub contention: Option<Contention>,
}

/// Statistics of a condition variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct CondStats {
    pub wait: u32,
    pub timedwait: u32,
    pub wait_sleep_time_ns: u64,
    pub timedwait_sleep_time_ns: u64,
    pub timedwait_timeout: u32,
    pub signal: u32,
    pub broadcast: u32,
    pub contention: Option<Contention>,
}

/// One side of a rwlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct SideStats {
    /// Acquisitions, without those by a try.
    pub lock: u32,
    pub sleep: u32,
    pub sleep_time_ns: u64,
    #[cfg_attr(feature = "serde", serde(rename = "try"))]
    pub try_: u32,
    pub try_fail: u32,
}

/// Statistics of a rwlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct RwlockStats {
    pub read: SideStats,
    pub write: SideStats,
    /// Of writers.
    pub hold_time: HoldTime,
    /// The thread that wrote last.
    pub last: Option<InnerTid>,
    pub contention: Option<Contention>,
}

/// Statistics of a semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct SemaphoreStats {
    pub wait: u32,
    /// Waits that found the count 0 as they began.
    pub sleep: u32,
    pub sleep_time_ns: u64,
    #[cfg_attr(feature = "serde", serde(rename = "try"))]
    pub try_: u32,
    pub try_fail: u32,
    pub post: u32,
    pub max_count: u32,
    pub min_count: u32,
    pub contention: Option<Contention>,
}

/// Statistics of a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct BarrierStats {
    pub wait: u32,
    pub sleep: u32,
    pub sleep_time_ns: u64,
    pub contention: Option<Contention>,
}

/// The waits for an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Contention {
    /// Half of the waits were no longer, to a factor of two.
    pub p50_ns: u64,
    /// 99 of 100 were no longer, to a factor of two.
    pub p99_ns: u64,
    /// How many waits were how long, the shortest first; without lengths that no wait had.
    pub histogram: Vec<WaitBucket>,
    /// Who waited where, for the first pairs that were seen.
    pub sites: Vec<WaitSite>,
}

/// Waits of about the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct WaitBucket {
    /// None of them was longer, nor shorter than half of that; of the last bucket that there can be they may be longer.
    pub up_to_ns: u64,
    /// How many.
    pub waits: u64,
}

/// Where a thread called from that waited, and where the one that made it wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct WaitSite {
    /// Return address of the call that waited.
    pub waiter: RemoteAddr,
    /// Return address of the call that had taken the lock, if that was seen.
    pub holder: Option<RemoteAddr>,
    /// Time waited.
    pub time_ns: u64,
}

impl SyncStats {
    /// Of an object with which nothing was done; `None` for kinds that are not counted.
    pub fn none(kind: SyncKind) -> Option<Self> {
        Some(match kind {
            SyncKind::Mutex | SyncKind::Spinlock => Self::Lock(LockStats::default()),
            SyncKind::Cond => Self::Cond(CondStats::default()),
            SyncKind::Rwlock => Self::Rwlock(RwlockStats::default()),
            SyncKind::Semaphore => Self::Semaphore(SemaphoreStats::default()),
            SyncKind::Barrier => Self::Barrier(BarrierStats::default()),
            _ => return None,
        })
    }

    /// Waits and the time they took, of whatever sort.
    pub fn waits(&self) -> (u64, u64) {
        match self {
            Self::Lock(lock) => (lock.sleep.into(), lock.sleep_time_ns),
            Self::Cond(cond) => {
                let waits = u64::from(cond.wait) + u64::from(cond.timedwait);
                (waits, cond.wait_sleep_time_ns.saturating_add(cond.timedwait_sleep_time_ns))
            }
            Self::Rwlock(lock) => {
                let waits = u64::from(lock.read.sleep) + u64::from(lock.write.sleep);
                (waits, lock.read.sleep_time_ns.saturating_add(lock.write.sleep_time_ns))
            }
            Self::Semaphore(sem) => (sem.sleep.into(), sem.sleep_time_ns),
            Self::Barrier(barrier) => (barrier.sleep.into(), barrier.sleep_time_ns),
        }
    }

    /// The contention, where there was any.
    pub fn contention(&self) -> Option<&Contention> {
        match self {
            Self::Lock(stats) => stats.contention.as_ref(),
            Self::Cond(stats) => stats.contention.as_ref(),
            Self::Rwlock(stats) => stats.contention.as_ref(),
            Self::Semaphore(stats) => stats.contention.as_ref(),
            Self::Barrier(stats) => stats.contention.as_ref(),
        }
    }
}
