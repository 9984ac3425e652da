//! Spinlocks.

use crate::functions::real;
use crate::memory;
use crate::mutex::{EBUSY, tid};
use crate::stacks;
use crate::tally::{self, Wait};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::*;
use table::{Entry, Kind};

fn acquired(entry: &Entry, site: usize) {
    let body = entry.spin();
    let number = body.lock.load(Relaxed);
    body.lock.store(number.wrapping_add(1), Relaxed);
    tally::acquired(entry, tally::is_timed(number), &body.held_since, tid(), site);
}

pub unsafe extern "C" fn init(lock: *mut c_void, shared: c_int) -> c_int {
    let result = real!(pthread_spin_init(*mut c_void, c_int))(lock, shared);
    if result == 0 {
        memory::renew(lock.addr(), Kind::Spin);
    }
    result
}

pub unsafe extern "C" fn destroy(lock: *mut c_void) -> c_int {
    let result = real!(pthread_spin_destroy(*mut c_void))(lock);
    if result == 0 {
        memory::end(lock.addr());
    }
    result
}

pub unsafe extern "C" fn lock(lock: *mut c_void, site: usize) -> c_int {
    let entry = memory::entry(lock.addr(), Kind::Spin);
    let mut result = real!(pthread_spin_trylock(*mut c_void))(lock);
    let wait = (result == EBUSY).then(|| Wait::begin(entry));
    if wait.is_some() {
        result = real!(pthread_spin_lock(*mut c_void))(lock);
    }
    if let Some(entry) = entry
        && result == 0
    {
        acquired(entry, site);
        if let Some(wait) = wait {
            let time = wait.end(entry, site, || stacks::caller(site));
            entry.spin().sleep_time.fetch_add(time, Relaxed);
            tally::bump(&entry.spin().sleep);
        }
    }
    result
}

pub unsafe extern "C" fn trylock(lock: *mut c_void, site: usize) -> c_int {
    let result = real!(pthread_spin_trylock(*mut c_void))(lock);
    if let Some(entry) = memory::entry(lock.addr(), Kind::Spin) {
        tally::bump(&entry.spin().try_);
        match result {
            0 => acquired(entry, site),
            _ => tally::bump(&entry.spin().try_fail),
        }
    }
    result
}

pub unsafe extern "C" fn unlock(lock: *mut c_void) -> c_int {
    if let Some(entry) = memory::entry(lock.addr(), Kind::Spin) {
        let body = entry.spin();
        tally::released(&body.held_since, &body.hold_time, &body.holds);
    }
    real!(pthread_spin_unlock(*mut c_void))(lock)
}
