//! From the agent's numbers to the model's.

use super::scale::Scale;
use crate::model::{
    BarrierStats, CondStats, Contention, HoldTime, LockStats, RwlockStats, SemaphoreStats, SideStats, SyncKind,
    SyncStats, WaitBucket, WaitSite,
};
use crate::{InnerTid, RemoteAddr};
use table::Kind;
use table::counts::{
    BarrierCounts, CondCounts, Counts, ExtraView, LockCounts, Record, RwlockCounts, SemaCounts, SideCounts,
};

/// What objects of a kind are in the model.
pub(super) fn sync_kind(kind: Kind) -> SyncKind {
    match kind {
        Kind::Mutex => SyncKind::Mutex,
        Kind::Cond => SyncKind::Cond,
        Kind::Rwlock => SyncKind::Rwlock,
        Kind::Sema => SyncKind::Semaphore,
        Kind::Barrier => SyncKind::Barrier,
        Kind::Spin => SyncKind::Spinlock,
    }
}

/// The numbers of a record, with times in nanoseconds.
pub(super) fn stats(record: &Record, extra: Option<&ExtraView>, scale: &Scale) -> SyncStats {
    let last = i32::try_from(record.last).ok().filter(|tid| *tid != 0).map(InnerTid);
    let contention = extra.and_then(|extra| contention(extra, scale));
    match record.counts {
        Counts::Lock(LockCounts { lock, ended, hold_time, holds, sleep, sleep_time, try_, try_fail }) => {
            let hold_time = hold(scale.ns(hold_time), holds, ended);
            let sleep_time_ns = scale.ns(sleep_time);
            SyncStats::Lock(LockStats { lock, sleep, sleep_time_ns, hold_time, try_, try_fail, last, contention })
        }
        Counts::Cond(CondCounts { wait, timedwait, wait_time, timedwait_time, timeout, signal, broadcast }) => {
            SyncStats::Cond(CondStats {
                wait,
                timedwait,
                wait_sleep_time_ns: scale.ns(wait_time),
                timedwait_sleep_time_ns: scale.ns(timedwait_time),
                timedwait_timeout: timeout,
                signal,
                broadcast,
                contention,
            })
        }
        Counts::Rwlock(RwlockCounts { read, write, ended, hold_time, holds }) => SyncStats::Rwlock(RwlockStats {
            read: side(read, scale),
            write: side(write, scale),
            hold_time: hold(scale.ns(hold_time), holds, ended),
            last,
            contention,
        }),
        Counts::Sema(SemaCounts { wait, sleep, sleep_time, try_, try_fail, post, max, min }) => {
            SyncStats::Semaphore(SemaphoreStats {
                wait,
                sleep,
                sleep_time_ns: scale.ns(sleep_time),
                try_,
                try_fail,
                post,
                max_count: max,
                min_count: min,
                contention,
            })
        }
        Counts::Barrier(BarrierCounts { wait, sleep, sleep_time }) => {
            SyncStats::Barrier(BarrierStats { wait, sleep, sleep_time_ns: scale.ns(sleep_time), contention })
        }
    }
}

fn side(side: SideCounts, scale: &Scale) -> SideStats {
    let SideCounts { lock, sleep, sleep_time, try_, try_fail } = side;
    SideStats { lock, sleep, sleep_time_ns: scale.ns(sleep_time), try_, try_fail }
}

/// The time of all `ended` holds, of which `timed` took `total`.
fn hold(total: u64, timed: u32, ended: u64) -> HoldTime {
    if timed == 0 || u64::from(timed) >= ended {
        return HoldTime { total_ns: total, estimated: timed == 0 && ended > 0, timed };
    }
    let all = total as f64 / f64::from(timed) * ended as f64;
    HoldTime { total_ns: all as u64, estimated: true, timed }
}

fn contention(extra: &ExtraView, scale: &Scale) -> Option<Contention> {
    let waits: u64 = extra.histogram.iter().map(|count| u64::from(*count)).sum();
    if waits == 0 {
        return None;
    }
    let sites = extra.sites.iter().filter(|(waiter, ..)| *waiter != 0).map(|(waiter, holder, time)| WaitSite {
        waiter: RemoteAddr(*waiter),
        holder: Some(RemoteAddr(*holder)).filter(|holder| holder.0 != 0),
        time_ns: scale.ns(*time),
    });
    let mut sites: Vec<WaitSite> = sites.collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.time_ns));
    let percentile = |part| scale.ns(percentile(&extra.histogram, waits, part));
    let buckets = extra.histogram.iter().enumerate().filter(|(_, waits)| **waits > 0);
    let bucket = |(at, waits): (usize, &u32)| WaitBucket { up_to_ns: scale.ns(end_of(at)), waits: u64::from(*waits) };
    let histogram = buckets.map(bucket).collect();
    Some(Contention { p50_ns: percentile(50), p99_ns: percentile(99), histogram, sites })
}

/// The upper end of a bucket.
fn end_of(bucket: usize) -> u64 {
    1 << (bucket + 7)
}

/// The upper end of the bucket in which `part` percent of the waits have ended.
pub(super) fn percentile(histogram: &[u32], waits: u64, part: u64) -> u64 {
    let wanted = (waits * part).div_ceil(100);
    let mut seen = 0;
    let bucket = histogram.iter().position(|count| {
        seen += u64::from(*count);
        seen >= wanted
    });
    end_of(bucket.unwrap_or(histogram.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_upper_ends_of_buckets() {
        let mut histogram = [0; table::HISTOGRAM];
        for time in [1, 100, 1000, 1000, 1_000_000] {
            histogram[table::bucket(time)] += 1;
        }
        assert_eq!(percentile(&histogram, 5, 50), 1024);
        assert_eq!(percentile(&histogram, 5, 99), 1 << 20);
        assert_eq!(percentile(&histogram, 5, 20), 128);
    }

    #[test]
    fn holds_are_exact_or_said_to_be_estimated() {
        assert_eq!(hold(500, 5, 5), HoldTime { total_ns: 500, estimated: false, timed: 5 });
        assert_eq!(hold(500, 5, 50), HoldTime { total_ns: 5000, estimated: true, timed: 5 });
        assert_eq!(hold(0, 0, 0), HoldTime { total_ns: 0, estimated: false, timed: 0 });
        assert!(hold(0, 0, 3).estimated);
    }
}
