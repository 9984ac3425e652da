//! Differences: every reader has its own beginning.

use super::Tracked;
use crate::model::SyncStats;

impl Tracked {
    /// What was counted after `start`, an earlier state of the same place; `None` if that is nothing.
    pub fn since(self, start: Option<&Self>) -> Option<Self> {
        let mut now = self;
        let Some(start) = start.filter(|start| start.kind == now.kind && start.generation == now.generation) else {
            return Some(now);
        };
        if start.stats == now.stats {
            return None;
        }
        match (&mut now.stats, &start.stats) {
            (SyncStats::Lock(now), SyncStats::Lock(start)) => {
                now.lock = now.lock.saturating_sub(start.lock);
                now.sleep = now.sleep.saturating_sub(start.sleep);
                now.sleep_time_ns = now.sleep_time_ns.saturating_sub(start.sleep_time_ns);
                now.hold_time.total_ns = now.hold_time.total_ns.saturating_sub(start.hold_time.total_ns);
                now.try_ = now.try_.saturating_sub(start.try_);
                now.try_fail = now.try_fail.saturating_sub(start.try_fail);
            }
            (SyncStats::Cond(now), SyncStats::Cond(start)) => {
                now.wait = now.wait.saturating_sub(start.wait);
                now.timedwait = now.timedwait.saturating_sub(start.timedwait);
                now.wait_sleep_time_ns = now.wait_sleep_time_ns.saturating_sub(start.wait_sleep_time_ns);
                now.timedwait_sleep_time_ns = now.timedwait_sleep_time_ns.saturating_sub(start.timedwait_sleep_time_ns);
                now.timedwait_timeout = now.timedwait_timeout.saturating_sub(start.timedwait_timeout);
                now.signal = now.signal.saturating_sub(start.signal);
                now.broadcast = now.broadcast.saturating_sub(start.broadcast);
            }
            (SyncStats::Rwlock(now), SyncStats::Rwlock(start)) => {
                for (now, start) in [(&mut now.read, &start.read), (&mut now.write, &start.write)] {
                    now.lock = now.lock.saturating_sub(start.lock);
                    now.sleep = now.sleep.saturating_sub(start.sleep);
                    now.sleep_time_ns = now.sleep_time_ns.saturating_sub(start.sleep_time_ns);
                    now.try_ = now.try_.saturating_sub(start.try_);
                    now.try_fail = now.try_fail.saturating_sub(start.try_fail);
                }
                now.hold_time.total_ns = now.hold_time.total_ns.saturating_sub(start.hold_time.total_ns);
            }
            (SyncStats::Semaphore(now), SyncStats::Semaphore(start)) => {
                now.wait = now.wait.saturating_sub(start.wait);
                now.sleep = now.sleep.saturating_sub(start.sleep);
                now.sleep_time_ns = now.sleep_time_ns.saturating_sub(start.sleep_time_ns);
                now.try_ = now.try_.saturating_sub(start.try_);
                now.try_fail = now.try_fail.saturating_sub(start.try_fail);
                now.post = now.post.saturating_sub(start.post);
            }
            _ => {}
        }
        Some(now)
    }
}
