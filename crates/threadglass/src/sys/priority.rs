//! Being scheduled before others, for as long as somebody waits for us.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// A thread's scheduling, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry {
    /// While this is open no CPU sleeps so deeply that waking it takes time; the kernel forgets that when it is closed.
    _awake: Option<File>,
    before: Option<(i32, libc::sched_param)>,
    slack: libc::c_int,
}

impl Hurry {
    /// Gives the calling thread a real-time priority and keeps CPUs awake, where that is permitted.
    pub(crate) fn new() -> Self {
        let awake = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        let microseconds = 0_i32.to_ne_bytes();
        let _awake = awake.ok().filter(|mut file| file.write_all(&microseconds).is_ok());
        let mut before = libc::sched_param { sched_priority: 0 };
        let wanted = libc::sched_param { sched_priority: 1 };
        // SAFETY: both structures live through the calls; 0 is the calling thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            // Keeps short naps short, even where nothing else is permitted.
            let slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            let is_done = policy == libc::SCHED_OTHER
                && libc::sched_getparam(0, &raw mut before) == 0
                && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0;
            Self { _awake, before: is_done.then_some((policy, before)), slack }
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
