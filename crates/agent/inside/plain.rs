//! Plain mutexes (`PTHREAD_MUTEX_DEFAULT`, not shared, not robust), taken and released here without a call, as libc
//! would: the shortest way there is, for what programs do most. The self test of `setup.rs` has shown that libc does the
//! same with them; everything that is not plain, not free or not known goes on to `mutex.rs`.

use crate::functions::{self, at as number, tracked};
use crate::mutex::{self, Mutex, TID_OFFSET};
use crate::{clock, elf, memory, sys, tally};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use table::{Entry, Kind};

/// Whether the self test went well.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

static NO: AtomicBool = AtomicBool::new(false);
/// libc's word for whether there is but one thread, or one that is always false.
static SINGLE: AtomicPtr<AtomicBool> = AtomicPtr::new((&raw const NO).cast_mut());

/// Holds in progress that are timed, by the low bits of the thread's id: a thread with none need not look up what it
/// releases. A thread that shares its place with another looks in vain now and then.
static TIMED: [Place; PLACES] = [const { Place(AtomicU32::new(0)) }; PLACES];
const PLACES: usize = 1 << 12;

/// On a cache line of its own.
#[repr(align(64))]
struct Place(AtomicU32);

/// The self test went well: plain mutexes may be taken here.
pub fn learn() {
    IS_KNOWN.store(true, Relaxed);
    // A program that refers to the word has a copy of its own, which is then the one that libc writes.
    if let Some(found) = elf::first(c"__libc_single_threaded") {
        SINGLE.store(core::ptr::with_exposed_provenance_mut(found.address), Relaxed);
    }
}

/// Puts the functions for plain mutexes in place.
pub fn choose(exact: bool) {
    if !IS_KNOWN.load(Relaxed) {
        return;
    }
    let (lock, unlock) = match exact {
        true => (tracked!(lock::<true>, "rsi"), unlock::<true> as *const ()),
        false => (tracked!(lock::<false>, "rsi"), unlock::<false> as *const ()),
    };
    functions::choose(number::pthread_mutex_lock, lock as usize);
    functions::choose(number::pthread_mutex_unlock, unlock as usize);
}

/// Whether there is but one thread. libc itself forgoes atomic instructions then.
#[inline(always)]
fn is_single() -> bool {
    // SAFETY: ours or libc's, both there for ever. libc writes 0 or 1.
    unsafe { &*SINGLE.load(Relaxed) }.load(Relaxed)
}

/// Takes a plain mutex if it is free.
#[inline(always)]
pub fn take(mutex: &Mutex, tid: u32) -> bool {
    if is_single() {
        if mutex.lock.load(Relaxed) != 0 {
            return false;
        }
        mutex.lock.store(1, Relaxed);
    } else if mutex.lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return false;
    }
    mutex.owner.store(tid, Relaxed);
    mutex.users.store(mutex.users.load(Relaxed).wrapping_add(1), Relaxed);
    true
}

/// Releases a plain mutex. It may be gone as soon as the word is 0. Whether somebody is to be woken.
#[inline(always)]
fn release_only(mutex: &Mutex) -> bool {
    mutex.owner.store(0, Relaxed);
    mutex.users.store(mutex.users.load(Relaxed).wrapping_sub(1), Relaxed);
    if is_single() && mutex.lock.load(Relaxed) == 1 {
        mutex.lock.store(0, Relaxed);
        return false;
    }
    mutex.lock.swap(0, Release) > 1
}

/// The same, and wakes whoever waits. The result of an unlock.
#[inline(always)]
pub fn release(mutex: &Mutex) -> c_int {
    let word = (&raw const mutex.lock).addr();
    if release_only(mutex) { wake(word) } else { 0 }
}

#[cold]
#[inline(never)]
fn wake(word: usize) -> c_int {
    sys::wake_one(word);
    0
}

#[inline(always)]
fn tid() -> u32 {
    // SAFETY: the offset is known where plain mutexes are taken here.
    unsafe { mutex::tid_at(TID_OFFSET.load(Relaxed)) }
}

/// A hold of this thread is timed from now on.
pub fn hold_begins(tid: u32) {
    if !tally::is_exact() {
        place(tid).fetch_add(1, Relaxed);
    }
}

/// It is over. Not below 0, for one that ends in another thread: a place that is never 0 again costs time, no more.
pub fn hold_ends(tid: u32) {
    if !tally::is_exact() {
        let _ = place(tid).fetch_update(Relaxed, Relaxed, |timed| timed.checked_sub(1));
    }
}

#[inline(always)]
fn place(tid: u32) -> &'static AtomicU32 {
    &TIMED[tid as usize % PLACES].0
}

// What is rare is left to functions that are called last, so that the usual way saves no registers.

unsafe extern "C" fn lock<const EXACT: bool>(mutex: *mut c_void, site: usize) -> c_int {
    // SAFETY: the program's own mutex, of which only the atomic head is looked at.
    let head = unsafe { &*mutex.cast::<Mutex>() };
    // Two branches, which the processor foresees: were the entry chosen by what is read, nothing could go on before.
    if head.kind.load(Relaxed) != 0 {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock(mutex, site) };
    }
    let Some(entry) = memory::entry_at_once(mutex.addr(), Kind::Mutex) else {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock(mutex, site) };
    };
    let tid = tid();
    if !take(head, tid) {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock_taken(mutex, site) };
    }
    let body = entry.mutex();
    let number = body.lock.load(Relaxed);
    if !EXACT && (tally::is_timed(number) || entry.extra.load(Relaxed) != 0) {
        return count(entry, tid, site);
    }
    body.lock.store(number.wrapping_add(1), Relaxed);
    entry.last.store(tid, Relaxed);
    // Also without a time: a hold whose end was not seen must not become part of this one.
    body.held_since.store(if EXACT { clock::now() } else { 0 }, Relaxed);
    if EXACT && entry.extra.load(Relaxed) != 0 {
        return note_holder(entry, site);
    }
    0
}

#[cold]
#[inline(never)]
fn count(entry: &'static Entry, tid: u32, site: usize) -> c_int {
    mutex::count(entry, tid, site);
    0
}

#[cold]
#[inline(never)]
fn note_holder(entry: &'static Entry, site: usize) -> c_int {
    memory::note_holder(entry, site);
    0
}

unsafe extern "C" fn unlock<const EXACT: bool>(mutex: *mut c_void) -> c_int {
    // SAFETY: as above.
    let head = unsafe { &*mutex.cast::<Mutex>() };
    if head.kind.load(Relaxed) != 0 {
        // SAFETY: the program's argument.
        return unsafe { mutex::unlock(mutex) };
    }
    if EXACT {
        if let Some(entry) = memory::entry_at_once(mutex.addr(), Kind::Mutex) {
            let body = entry.mutex();
            tally::released(&body.held_since, &body.hold_time, &body.holds);
        } else {
            return end_hold(mutex);
        }
    } else if place(tid()).load(Relaxed) != 0 {
        return end_hold(mutex);
    }
    release(head)
}

/// The hold may be one that is timed.
#[cold]
#[inline(never)]
fn end_hold(mutex: *mut c_void) -> c_int {
    if let Some(entry) = memory::entry(mutex.addr(), Kind::Mutex) {
        mutex::released(entry);
    }
    // SAFETY: as above.
    release(unsafe { &*mutex.cast::<Mutex>() })
}
