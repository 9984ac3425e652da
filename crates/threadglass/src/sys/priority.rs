//! Being scheduled before others, for as long as somebody waits for us.

/// A thread's scheduling, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry {
    before: Option<(i32, libc::sched_param)>,
    slack: libc::c_int,
}

impl Hurry {
    /// Gives the calling thread a real-time priority, where that is permitted.
    pub(crate) fn new() -> Self {
        let mut before = libc::sched_param { sched_priority: 0 };
        let wanted = libc::sched_param { sched_priority: 1 };
        // SAFETY: both structures live through the calls; 0 is the calling thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            // Short naps are short, then, also where nothing else is permitted.
            let slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            let is_done = policy == libc::SCHED_OTHER
                && libc::sched_getparam(0, &raw mut before) == 0
                && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0;
            Self { before: is_done.then_some((policy, before)), slack }
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            if let Some((policy, before)) = self.before {
                libc::sched_setscheduler(0, policy, &raw const before);
            }
            if self.slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, self.slack);
            }
        }
    }
}
