//! Read-write locks.

use crate::functions::{real, waiting};
use crate::memory::{self, more};
use crate::mutex::{EBUSY, ETIMEDOUT, tid};
use crate::stacks;
use crate::tally::{self, Wait};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use table::{Entry, Kind};

/// Where a `pthread_rwlock_t` keeps the id of its writer, which is 0 while there is none.
const WRITER: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

fn acquired(entry: &'static Entry, site: usize) {
    let body = entry.rwlock();
    let number = body.acquired.load(Relaxed);
    tally::bump_held(&body.acquired);
    tally::acquired(entry, tally::is_timed(u64::from(number)), &body.held_since, tid(), site);
}

pub unsafe extern "C" fn init(lock: *mut c_void, attributes: *const c_void) -> c_int {
    let result = real!(pthread_rwlock_init(*mut c_void, *const c_void))(lock, attributes);
    if result == 0 {
        memory::renew(lock.addr(), Kind::Rwlock);
    }
    result
}

pub unsafe extern "C" fn destroy(lock: *mut c_void) -> c_int {
    let result = real!(pthread_rwlock_destroy(*mut c_void))(lock);
    if result == 0 {
        memory::end(lock.addr());
    }
    result
}

/// Tries first, and so knows whether `call` will wait.
#[inline(always)]
fn lock_by(lock: *mut c_void, side: Side, site: usize, call: impl Fn(*mut c_void) -> c_int) -> c_int {
    let entry = memory::entry(lock.addr(), Kind::Rwlock);
    let mut result = match side {
        Side::Read => real!(pthread_rwlock_tryrdlock(*mut c_void))(lock),
        Side::Write => real!(pthread_rwlock_trywrlock(*mut c_void))(lock),
    };
    let mut wait = None;
    if result != 0 {
        wait = (result == EBUSY).then(|| Wait::begin(entry));
        result = call(lock);
    }
    let Some(entry) = entry else { return result };
    if result == 0 {
        match side {
            Side::Read => tally::bump(&entry.rwlock().rdlock),
            Side::Write => {
                tally::bump_held(&entry.rwlock().wrlock);
                acquired(entry, site);
            }
        }
    }
    if let Some(wait) = wait
        && (result == 0 || result == ETIMEDOUT)
    {
        let time = wait.end(entry, site, || stacks::caller(site));
        let (total, count) = match side {
            Side::Read => (&more(entry).rd_sleep_time, &more(entry).rd_sleep),
            Side::Write => (&more(entry).wr_sleep_time, &more(entry).wr_sleep),
        };
        total.fetch_add(time, Relaxed);
        tally::bump(count);
    }
    result
}

pub unsafe extern "C" fn rdlock(lock: *mut c_void, site: usize) -> c_int {
    lock_by(lock, Side::Read, site, waiting!(pthread_rwlock_rdlock(*mut c_void)))
}

pub unsafe extern "C" fn wrlock(lock: *mut c_void, site: usize) -> c_int {
    lock_by(lock, Side::Write, site, waiting!(pthread_rwlock_wrlock(*mut c_void)))
}

/// Whether a time limit is one that the C library accepts. It looks at it even when the lock is free, and takes none
/// for a wait without end.
fn is_valid(until: *const c_void) -> bool {
    // SAFETY: the program's own `timespec`, if it gives one.
    until.is_null() || unsafe { (0..1_000_000_000).contains(&until.cast::<i64>().add(1).read()) }
}

macro_rules! timed {
    ($name:ident, $clock_name:ident, $side:expr, $real:ident, $clock_real:ident) => {
        pub unsafe extern "C" fn $name(lock: *mut c_void, until: *const c_void, site: usize) -> c_int {
            let call = waiting!($real(*mut c_void, *const c_void));
            if !is_valid(until) {
                return call(lock, until);
            }
            lock_by(lock, $side, site, |lock| call(lock, until))
        }

        pub unsafe extern "C" fn $clock_name(
            lock: *mut c_void,
            clock: c_int,
            until: *const c_void,
            site: usize,
        ) -> c_int {
            let call = waiting!($clock_real(*mut c_void, c_int, *const c_void));
            if !is_valid(until) || (clock != 0 && clock != 1) {
                return call(lock, clock, until);
            }
            lock_by(lock, $side, site, |lock| call(lock, clock, until))
        }
    };
}
timed!(timedrdlock, clockrdlock, Side::Read, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock);
timed!(timedwrlock, clockwrlock, Side::Write, pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock);

pub unsafe extern "C" fn tryrdlock(lock: *mut c_void) -> c_int {
    let result = real!(pthread_rwlock_tryrdlock(*mut c_void))(lock);
    if let Some(entry) = memory::entry(lock.addr(), Kind::Rwlock) {
        tally::bump(&entry.rwlock().rd_try);
        if result != 0 {
            tally::bump(&entry.rwlock().rd_try_fail);
        }
    }
    result
}

pub unsafe extern "C" fn trywrlock(lock: *mut c_void, site: usize) -> c_int {
    let result = real!(pthread_rwlock_trywrlock(*mut c_void))(lock);
    if let Some(entry) = memory::entry(lock.addr(), Kind::Rwlock) {
        tally::bump(&entry.rwlock().wr_try);
        match result {
            0 => acquired(entry, site),
            _ => tally::bump(&entry.rwlock().wr_try_fail),
        }
    }
    result
}

pub unsafe extern "C" fn unlock(lock: *mut c_void) -> c_int {
    // SAFETY: the program's own lock, which it holds.
    let writer: &AtomicU32 = unsafe { &*lock.byte_add(WRITER).cast() };
    if writer.load(Relaxed) != 0
        && let Some(entry) = memory::entry(lock.addr(), Kind::Rwlock)
    {
        let body = entry.rwlock();
        tally::released(&body.held_since, &body.hold_time, &body.holds);
    }
    real!(pthread_rwlock_unlock(*mut c_void))(lock)
}
