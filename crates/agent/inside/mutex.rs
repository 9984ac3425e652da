//! Mutexes, POSIX and C11: they are the same object with other error codes.

use crate::functions::{real, waiting};
use crate::tally::{self, Wait};
use crate::{memory, plain, stacks, sys, words};
use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use table::{Entry, Kind};

pub const EBUSY: c_int = 16;
pub const ETIMEDOUT: c_int = 110;
pub const EOWNERDEAD: c_int = 130;
/// What C11 calls it.
pub const THRD_TIMEDOUT: c_int = 4;

/// The head of a `pthread_mutex_t`, which is part of the ABI.
#[repr(C)]
pub struct Mutex {
    pub lock: AtomicU32,
    pub count: AtomicU32,
    pub owner: AtomicU32,
    pub users: AtomicU32,
    pub kind: AtomicU32,
}

const TYPE: u32 = 3;
const RECURSIVE: u32 = 1;
const ERRORCHECK: u32 = 2;
const ROBUST: u32 = 16;
const INHERIT: u32 = 32;
const PROTECT: u32 = 64;

/// Where a thread's id is, from its thread pointer; 0 when that is not known.
pub static TID_OFFSET: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
pub fn tid() -> u32 {
    match TID_OFFSET.load(Relaxed) {
        0 => sys::gettid(),
        // SAFETY: the self test has read it there.
        offset => unsafe { tid_at(offset) },
    }
}

#[inline(always)]
pub unsafe fn tid_at(offset: usize) -> u32 {
    let tid: u32;
    // SAFETY: by the caller's promise, inside the thread's descriptor.
    unsafe { asm!("mov {:e}, fs:[{}]", out(reg) tid, in(reg) offset, options(nostack, readonly, preserves_flags)) };
    tid
}

/// Counts an acquisition by this thread, unless it is one more of a recursive mutex.
#[inline(always)]
pub fn acquired(mutex: &Mutex, entry: &Entry, site: usize) {
    if mutex.kind.load(Relaxed) & TYPE == RECURSIVE && mutex.count.load(Relaxed) != 1 {
        return;
    }
    count(entry, tid(), site, false);
}

/// Counts an acquisition by this thread, whose hold is timed if it is said to be, or its turn has come.
#[inline(always)]
pub fn count(entry: &Entry, tid: u32, site: usize, is_timed: bool) {
    let body = entry.mutex();
    let number = words::collect(entry);
    body.lock.store(number.wrapping_add(1), Relaxed);
    let is_timed = is_timed || tally::is_timed(number);
    if is_timed {
        plain::hold_begins(tid);
    }
    tally::acquired(entry, is_timed, &body.held_since, tid, site);
}

/// Whether an unlock by this thread would release the mutex.
pub fn would_release(mutex: &Mutex) -> bool {
    let kind = mutex.kind.load(Relaxed);
    let is_checked = kind & (ROBUST | INHERIT) != 0 || matches!(kind & TYPE, RECURSIVE | ERRORCHECK);
    let is_inner = kind & TYPE == RECURSIVE && mutex.count.load(Relaxed) > 1;
    !is_inner && (!is_checked || mutex.owner.load(Relaxed) == tid())
}

/// The hold by this thread is about to end.
pub fn released(mutex: &Mutex, entry: &Entry) {
    let body = entry.mutex();
    if tally::released(&body.held_since, &body.hold_time, &body.holds) {
        plain::hold_ends(tid());
        // If nobody has ever waited nobody wants to know who made them: a word does from now on.
        if plain::has_words() && mutex.kind.load(Relaxed) == 0 && entry.extra.load(Relaxed) == 0 {
            words::put(entry);
        }
    }
}

#[inline(always)]
fn at<'a>(mutex: *mut c_void) -> &'a Mutex {
    // SAFETY: the program's own mutex, of which only the atomic head is looked at.
    unsafe { &*mutex.cast() }
}

pub unsafe extern "C" fn init(mutex: *mut c_void, attributes: *const c_void) -> c_int {
    let result = real!(pthread_mutex_init(*mut c_void, *const c_void))(mutex, attributes);
    if result == 0 {
        memory::renew(mutex.addr(), Kind::Mutex);
    }
    result
}

pub unsafe extern "C" fn destroy(mutex: *mut c_void) -> c_int {
    let result = real!(pthread_mutex_destroy(*mut c_void))(mutex);
    if result == 0 {
        memory::end(mutex.addr());
    }
    result
}

pub unsafe extern "C" fn lock(mutex: *mut c_void, site: usize) -> c_int {
    lock_by(mutex, site, waiting!(pthread_mutex_lock(*mut c_void)), ETIMEDOUT)
}

/// Waits for a plain mutex that was found taken.
#[cold]
#[inline(never)]
pub unsafe extern "C" fn lock_taken(mutex: *mut c_void, site: usize) -> c_int {
    let entry = memory::entry(mutex.addr(), Kind::Mutex);
    wait(mutex, entry, site, waiting!(pthread_mutex_lock(*mut c_void)), ETIMEDOUT)
}

pub unsafe extern "C" fn timedlock(mutex: *mut c_void, until: *const c_void, site: usize) -> c_int {
    let call = waiting!(pthread_mutex_timedlock(*mut c_void, *const c_void));
    lock_by(mutex, site, |mutex| call(mutex, until), ETIMEDOUT)
}

pub unsafe extern "C" fn clocklock(mutex: *mut c_void, clock: c_int, until: *const c_void, site: usize) -> c_int {
    let call = waiting!(pthread_mutex_clocklock(*mut c_void, c_int, *const c_void));
    // An invalid clock is an error even when the mutex is free, so nothing is tried first.
    if clock != 0 && clock != 1 {
        return call(mutex, clock, until);
    }
    lock_by(mutex, site, |mutex| call(mutex, clock, until), ETIMEDOUT)
}

/// Tries first, and so knows whether `call` will wait.
#[inline(always)]
fn lock_by(mutex: *mut c_void, site: usize, call: impl Fn(*mut c_void) -> c_int, timed_out: c_int) -> c_int {
    let entry = memory::entry(mutex.addr(), Kind::Mutex);
    if at(mutex).kind.load(Relaxed) & (ROBUST | INHERIT | PROTECT) != 0 {
        return lock_special(mutex, entry, site, call, timed_out);
    }
    match real!(pthread_mutex_trylock(*mut c_void))(mutex) {
        // The C11 functions know no mutex that gives the second.
        result @ (0 | EOWNERDEAD) => {
            if let Some(entry) = entry {
                acquired(at(mutex), entry, site);
            }
            result
        }
        EBUSY => wait(mutex, entry, site, call, timed_out),
        _ => call(mutex),
    }
}

/// Robust mutexes and those that change priorities are not tried first: libc's trylock leaves one that cannot be
/// recovered locked. Whether `call` will wait is told by the mutex, which may change its mind before the call.
#[inline(never)]
fn lock_special(
    mutex: *mut c_void,
    entry: Option<&'static Entry>,
    site: usize,
    call: impl Fn(*mut c_void) -> c_int,
    timed_out: c_int,
) -> c_int {
    let head = at(mutex);
    // The owner's id; with a priority ceiling above it, 0, 1 or 2.
    let mask = if head.kind.load(Relaxed) & PROTECT != 0 { 0x7_ffff } else { 0x3fff_ffff };
    if head.lock.load(Relaxed) & mask != 0 && head.owner.load(Relaxed) != tid() {
        return wait(mutex, entry, site, call, timed_out);
    }
    let result = call(mutex);
    if let Some(entry) = entry
        && (result == 0 || result == EOWNERDEAD)
    {
        acquired(head, entry, site);
    }
    result
}

/// Waits by `call` for a mutex that was found taken.
#[cold]
#[inline(never)]
fn wait(
    mutex: *mut c_void,
    entry: Option<&'static Entry>,
    site: usize,
    call: impl Fn(*mut c_void) -> c_int,
    timed_out: c_int,
) -> c_int {
    let wait = Wait::begin(entry);
    let result = call(mutex);
    if let Some(entry) = entry
        && (result == 0 || result == EOWNERDEAD || result == timed_out)
    {
        if result != timed_out {
            acquired(at(mutex), entry, site);
        }
        let time = wait.end(entry, site, || stacks::caller(site));
        entry.mutex().sleep_time.fetch_add(time, Relaxed);
        tally::bump(&entry.mutex().sleep);
    }
    result
}

/// The outcome of a try, of which `busy` is the failure that is one.
#[inline(always)]
fn tried(mutex: *mut c_void, site: usize, result: c_int) -> c_int {
    if let Some(entry) = memory::entry(mutex.addr(), Kind::Mutex) {
        let head = at(mutex);
        tally::bump(&entry.mutex().try_);
        match result {
            0 | EOWNERDEAD => acquired(head, entry, site),
            // One's own errorcheck mutex: decided without a try.
            _ if head.kind.load(Relaxed) & TYPE == ERRORCHECK && head.owner.load(Relaxed) == tid() => {}
            _ => tally::bump(&entry.mutex().try_fail),
        }
    }
    result
}

pub unsafe extern "C" fn trylock(mutex: *mut c_void, site: usize) -> c_int {
    let result = real!(pthread_mutex_trylock(*mut c_void))(mutex);
    tried(mutex, site, result)
}

#[inline(always)]
fn unlock_by(mutex: *mut c_void, call: impl Fn(*mut c_void) -> c_int) -> c_int {
    if let Some(entry) = memory::entry(mutex.addr(), Kind::Mutex)
        && would_release(at(mutex))
    {
        released(at(mutex), entry);
    }
    call(mutex)
}

pub unsafe extern "C" fn unlock(mutex: *mut c_void) -> c_int {
    unlock_by(mutex, real!(pthread_mutex_unlock(*mut c_void)))
}

/// Registers the mutex, as every use of it does. There is no counter for this.
pub unsafe extern "C" fn consistent(mutex: *mut c_void) -> c_int {
    let _ = memory::entry(mutex.addr(), Kind::Mutex);
    real!(pthread_mutex_consistent(*mut c_void))(mutex)
}

pub unsafe extern "C" fn mtx_init(mutex: *mut c_void, kind: c_int) -> c_int {
    let result = real!(mtx_init(*mut c_void, c_int))(mutex, kind);
    if result == 0 {
        memory::renew(mutex.addr(), Kind::Mutex);
    }
    result
}

pub unsafe extern "C" fn mtx_destroy(mutex: *mut c_void) {
    real!(mtx_destroy(*mut c_void))(mutex);
    memory::end(mutex.addr());
}

pub unsafe extern "C" fn mtx_lock(mutex: *mut c_void, site: usize) -> c_int {
    lock_by(mutex, site, waiting!(mtx_lock(*mut c_void)), THRD_TIMEDOUT)
}

pub unsafe extern "C" fn mtx_timedlock(mutex: *mut c_void, until: *const c_void, site: usize) -> c_int {
    let call = waiting!(mtx_timedlock(*mut c_void, *const c_void));
    lock_by(mutex, site, |mutex| call(mutex, until), THRD_TIMEDOUT)
}

pub unsafe extern "C" fn mtx_trylock(mutex: *mut c_void, site: usize) -> c_int {
    let result = real!(mtx_trylock(*mut c_void))(mutex);
    tried(mutex, site, result)
}

pub unsafe extern "C" fn mtx_unlock(mutex: *mut c_void) -> c_int {
    unlock_by(mutex, real!(mtx_unlock(*mut c_void)))
}
