//! Barriers.

use crate::functions::{real, waiting};
use crate::memory;
use crate::stacks;
use crate::tally::{self, Wait};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::Ordering::*;
use table::Kind;

/// What `pthread_barrier_wait` returns to one of them.
const SERIAL_THREAD: c_int = -1;

pub unsafe extern "C" fn init(barrier: *mut c_void, attributes: *const c_void, count: c_uint) -> c_int {
    let result = real!(pthread_barrier_init(*mut c_void, *const c_void, c_uint))(barrier, attributes, count);
    if result == 0 {
        memory::renew(barrier.addr(), Kind::Barrier);
    }
    result
}

pub unsafe extern "C" fn destroy(barrier: *mut c_void) -> c_int {
    let result = real!(pthread_barrier_destroy(*mut c_void))(barrier);
    if result == 0 {
        memory::end(barrier.addr());
    }
    result
}

pub unsafe extern "C" fn wait(barrier: *mut c_void, site: usize) -> c_int {
    let Some(entry) = memory::entry(barrier.addr(), Kind::Barrier) else {
        return waiting!(pthread_barrier_wait(*mut c_void))(barrier);
    };
    tally::bump(&entry.sema().wait);
    let key = entry.key.load(Relaxed);
    let wait = Wait::begin(Some(entry));
    let result = waiting!(pthread_barrier_wait(*mut c_void))(barrier);
    // The last of a round waits for nobody. Another thread may have destroyed the barrier since.
    if result != SERIAL_THREAD && entry.key.load(Relaxed) == key {
        let time = wait.end(entry, site, || stacks::caller(site));
        entry.sema().sleep_time.fetch_add(time, Relaxed);
        tally::bump(&entry.sema().sleep);
    }
    result
}
