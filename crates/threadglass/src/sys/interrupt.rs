//! Waiting that Ctrl-C ends, without ending this program.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// `si_code` of a signal that the kernel sends: Ctrl-C on a terminal.
const FROM_KERNEL: i32 = 0x80;

/// Takes SIGINT, SIGTERM and SIGHUP for the calling thread, which does not die of them until this is dropped.
#[derive(Debug)]
pub struct Interrupt {
    signals: SignalFd,
    old: SigSet,
    asked: Cell<bool>,
}

/// Someone asked us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// By which signal.
    pub signal: i32,
    /// Whether it came from a terminal, so that our children have got it too.
    pub from_terminal: bool,
}

impl Interrupt {
    /// Begins. Threads and commands started from here on inherit that these signals are blocked.
    pub fn watch() -> std::io::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        let fd = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let old = SigSet::thread_get_mask()?;
        signals.thread_block()?;
        Ok(Self { signals: fd, old, asked: Cell::new(false) })
    }

    /// Whether we were ever asked to end.
    pub fn is_asked(&self) -> bool {
        self.asked.get()
    }

    /// Waits for a time, or until asked to end.
    pub fn wait(&self, time: Duration) -> Option<Asked> {
        let started = Instant::now();
        loop {
            let left = time.saturating_sub(started.elapsed());
            let timeout = PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return self.take(),
                // Cannot be, but must not become a loop without a pause.
                Err(_) => std::thread::sleep(left),
            }
            if started.elapsed() >= time {
                return None;
            }
        }
    }

    fn take(&self) -> Option<Asked> {
        let info = self.signals.read_signal().ok().flatten()?;
        self.asked.set(true);
        let signal = i32::try_from(info.ssi_signo).unwrap_or(libc::SIGTERM);
        Some(Asked { signal, from_terminal: info.ssi_code == FROM_KERNEL })
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        // A second signal asks for the same.
        while self.take().is_some() {}
        let _ = self.old.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;

    #[test]
    fn a_wait_ends_by_a_signal_or_in_time() {
        let before = SigSet::thread_get_mask().unwrap();
        let interrupt = Interrupt::watch().unwrap();
        let started = Instant::now();
        assert_eq!(interrupt.wait(Duration::from_millis(20)), None);
        assert!(started.elapsed() >= Duration::from_millis(20) && !interrupt.is_asked());
        raise(Signal::SIGHUP).unwrap();
        let asked = Asked { signal: libc::SIGHUP, from_terminal: false };
        assert_eq!(interrupt.wait(Duration::from_secs(60)), Some(asked));
        assert!(interrupt.is_asked());
        assert_eq!(interrupt.wait(Duration::ZERO), None, "it was taken");
        drop(interrupt);
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
