//! Sleeping until it is time, or until the user has had enough.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Naps that Ctrl-C ends.
#[derive(Debug)]
pub struct Naps {
    signals: SignalFd,
    asked: bool,
}

impl Naps {
    /// Blocks SIGINT, SIGTERM and SIGHUP for the calling thread and those it starts: they end naps from now on.
    pub fn new() -> Result<Self, Errno> {
        let asked: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        asked.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&asked, SfdFlags::SFD_CLOEXEC)?, asked: false })
    }

    /// Whether we were asked to stop.
    pub fn is_over(&self) -> bool {
        self.asked
    }

    /// Sleeps for `time`; less when asked to stop.
    pub fn nap(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while !self.asked {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let timeout = PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => self.asked = true,
                Err(_) => std::thread::sleep(left),
            }
        }
    }
}
