//! get_robust_list(2): the kernel's pointer into a thread's glibc descriptor.

use crate::arch::syscall;
use crate::{Lwp, RemoteAddr};

/// Address of the thread's robust-list head, `None` when it has none (not started yet, already
/// leaving, or not a pthread), has gone, or may not be looked at.
pub(crate) fn robust_head(lwp: Lwp) -> Option<RemoteAddr> {
    let mut head: u64 = 0;
    let mut len: usize = 0;
    // SAFETY: the kernel writes one pointer to `head` and one size_t to `len`, both live locals of
    // that size; it only reads about the other thread.
    let rc = unsafe { libc::syscall(syscall::GET_ROBUST_LIST, lwp.0, &raw mut head, &raw mut len) };
    (rc == 0 && head != 0).then_some(RemoteAddr(head))
}

#[cfg(test)]
mod tests {
    #[test]
    fn own_thread_has_one() {
        // SAFETY: gettid has no arguments and cannot fail.
        let tid = unsafe { libc::gettid() };
        assert!(super::robust_head(crate::Lwp(tid)).is_some());
        assert!(super::robust_head(crate::Lwp(-5)).is_none());
    }
}
