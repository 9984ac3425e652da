//! Being asked to end, without dying of it.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// `si_code` of a signal that the kernel sends: Ctrl-C on a terminal.
const FROM_KERNEL: i32 = 0x80;

/// Takes SIGINT, SIGTERM and SIGHUP for the calling thread, which does not die of them any more.
#[derive(Debug)]
pub struct Interrupt {
    signals: SignalFd,
    old: SigSet,
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
        let old = SigSet::thread_get_mask()?;
        signals.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?, old })
    }

    /// Waits for a time, or until asked to end.
    pub fn wait(&self, time: Duration) -> Option<Asked> {
        let timeout = PollTimeout::try_from(time.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(Errno::EINTR) => None,
            // Cannot be, but must not become a loop without a pause.
            Err(_) => {
                std::thread::sleep(time);
                None
            }
            Ok(_) => {
                let info = self.signals.read_signal().ok().flatten()?;
                Some(Asked {
                    signal: i32::try_from(info.ssi_signo).unwrap_or(libc::SIGTERM),
                    from_terminal: info.ssi_code == FROM_KERNEL,
                })
            }
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        let _ = self.old.thread_set_mask();
    }
}
