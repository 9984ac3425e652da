//! Semaphores: what does not wait. `sem_post` may be called by signal handlers, and so may all of this.

use crate::functions::real;
use crate::memory;
use crate::tally;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use table::{Entry, Kind};

/// The count of a semaphore now: the first word of a `sem_t`.
pub fn value(sem: *mut c_void) -> u32 {
    // SAFETY: the program's own semaphore.
    unsafe { &*sem.cast::<AtomicU32>() }.load(Relaxed)
}

/// The entry of a semaphore. A new one begins with the count of now.
pub fn entry(sem: *mut c_void) -> Option<&'static Entry> {
    let entry = memory::entry(sem.addr(), Kind::Sema)?;
    // As nothing was noted yet, it is new. Whoever else finds it so notes a count of the same moment.
    if entry.sema().not_min.load(Relaxed) == 0 {
        note(entry, value(sem));
    }
    Some(entry)
}

fn note(entry: &Entry, value: u32) {
    saw_most(entry, value);
    saw_least(entry, value);
}

fn saw_most(entry: &Entry, value: u32) {
    if entry.sema().max.load(Relaxed) < value {
        entry.sema().max.fetch_max(value, Relaxed);
    }
}

pub fn saw_least(entry: &Entry, value: u32) {
    if entry.sema().not_min.load(Relaxed) < !value {
        entry.sema().not_min.fetch_max(!value, Relaxed);
    }
}

pub unsafe extern "C" fn init(sem: *mut c_void, shared: c_int, count: c_uint) -> c_int {
    let result = real!(sem_init(*mut c_void, c_int, c_uint))(sem, shared, count);
    if result == 0
        && let Some(entry) = memory::renew(sem.addr(), Kind::Sema)
    {
        note(entry, count);
    }
    result
}

pub unsafe extern "C" fn destroy(sem: *mut c_void) -> c_int {
    let result = real!(sem_destroy(*mut c_void))(sem);
    if result == 0 {
        memory::end(sem.addr());
    }
    result
}

pub unsafe extern "C" fn trywait(sem: *mut c_void) -> c_int {
    let entry = entry(sem);
    let result = real!(sem_trywait(*mut c_void))(sem);
    if let Some(entry) = entry {
        tally::bump(&entry.sema().try_);
        match result {
            0 => saw_least(entry, value(sem)),
            _ => tally::bump(&entry.sema().try_fail),
        }
    }
    result
}

pub unsafe extern "C" fn post(sem: *mut c_void) -> c_int {
    let entry = entry(sem);
    // Counted before: once it is posted, whoever waited may have destroyed it.
    if let Some(entry) = entry {
        tally::bump(&entry.sema().post);
        saw_most(entry, value(sem).saturating_add(1));
    }
    real!(sem_post(*mut c_void))(sem)
}
