//! Being scheduled before others, for as long as somebody waits for us.

/// A thread's scheduling, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry(Option<(i32, libc::sched_param)>);

impl Hurry {
    /// Gives the calling thread a real-time priority, where that is permitted.
    pub(crate) fn new() -> Self {
        let mut before = libc::sched_param { sched_priority: 0 };
        let wanted = libc::sched_param { sched_priority: 1 };
        // SAFETY: both structures live through the calls; 0 is the calling thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            if policy != libc::SCHED_OTHER || libc::sched_getparam(0, &raw mut before) != 0 {
                return Self(None);
            }
            let is_done = libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0;
            Self(is_done.then_some((policy, before)))
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some((policy, before)) = self.0 {
            // SAFETY: as above.
            unsafe { libc::sched_setscheduler(0, policy, &raw const before) };
        }
    }
}
