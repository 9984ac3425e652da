//! kcmp(2): whether two threads share their memory.

use crate::Lwp;
use crate::arch::syscall;
use nix::errno::Errno;

/// KCMP_VM of the kernel's header.
const VM: i64 = 1;

/// Whether two threads, of whatever process, run in one address space; no where one of them does not exist. `None` where
/// the kernel does not tell.
pub(crate) fn is_shared(one: Lwp, other: Lwp) -> Option<bool> {
    // SAFETY: kcmp takes integers here, and touches no memory.
    let order = unsafe { libc::syscall(syscall::KCMP, one.0, other.0, VM, 0, 0) };
    match Errno::result(order) {
        Ok(order) => Some(order == 0),
        Err(Errno::ESRCH) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_shared;
    use crate::Lwp;

    #[test]
    fn by_threads_of_a_process_and_by_no_child() {
        // SAFETY: gettid has no arguments and cannot fail.
        let own = || Lwp(unsafe { libc::gettid() });
        let main = own();
        if is_shared(main, main).is_none() {
            testkit::skip(
                "by_threads_of_a_process_and_by_no_child",
                "this kernel has no kcmp, or does not let us call it",
            );
            return;
        }
        let shared = std::thread::spawn(move || is_shared(main, own())).join();
        assert_eq!(shared.ok(), Some(Some(true)));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep runs");
        assert_eq!(is_shared(main, Lwp(child.id() as i32)), Some(false));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(is_shared(main, Lwp(-5)), Some(false));
    }
}
