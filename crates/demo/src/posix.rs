//! What POSIX has and Rust's standard library has not.

use std::cell::UnsafeCell;

/// A `pthread_mutex_t` that is never destroyed.
pub(crate) struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the only access is by pthread_mutex_lock and pthread_mutex_unlock, which are made for being called by many threads.
unsafe impl Sync for PthreadMutex {}

impl PthreadMutex {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Inline, so that the function that wants the lock is the one that calls the C library.
    #[inline(always)]
    pub(crate) fn lock(&'static self) {
        // SAFETY: it was initialised by `new`, and is static: it neither moves nor ends.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[inline(always)]
    pub(crate) fn unlock(&'static self) {
        // SAFETY: as above; the caller has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Ends this process when the one that has started it ends, however that happens.
pub(crate) fn end_with_parent(parent: u32) {
    // SAFETY: this option takes a number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // It may have ended before.
    if std::os::unix::process::parent_id() != parent {
        std::process::exit(0);
    }
}

/// Gives the calling thread a name. That of the main thread is the name of the process.
pub(crate) fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads a string with a zero byte at its end.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
