//! Being scheduled before others, for as long as somebody waits for us.

use super::sched;
use std::fs::{File, OpenOptions};
use std::io::Write;

/// A thread's scheduling, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry {
    /// While this is open no CPU sleeps so deeply that waking it takes time; the kernel forgets that when it is closed.
    _awake: Option<File>,
    /// Policy and priority.
    before: Option<(i32, i32)>,
    slack: libc::c_int,
}

impl Hurry {
    /// Gives the calling thread a real-time priority and keeps CPUs awake, where that is permitted.
    pub(crate) fn new() -> Self {
        let awake = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        let microseconds = 0_i32.to_ne_bytes();
        let _awake = awake.ok().filter(|mut file| file.write_all(&microseconds).is_ok());
        let policy = sched::policy(sched::OWN).ok().filter(|policy| *policy == libc::SCHED_OTHER);
        let before = policy.zip(sched::priority(sched::OWN).ok());
        let before = before.filter(|_| sched::set_policy(sched::OWN, libc::SCHED_FIFO, 1).is_ok());
        // Keeps short naps short, even where nothing else is permitted.
        // SAFETY: these two options take and give numbers.
        let slack = unsafe {
            let slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            slack
        };
        Self { _awake, before, slack }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some((policy, priority)) = self.before {
            let _ = sched::set_policy(sched::OWN, policy, priority);
        }
        if self.slack > 0 {
            // SAFETY: this option takes a number.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack) };
        }
    }
}
