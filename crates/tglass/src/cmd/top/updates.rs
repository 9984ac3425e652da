//! What reaches the screen from elsewhere: keys, signals, and what was seen.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui_crossterm::crossterm::event::{self, Event};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use threadglass::Lwp;
use threadglass::model::{Machine, Snapshot, Stats, Thread};

/// Signals at which the terminal is given back.
const SIGNALS: [Signal; 5] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP];

/// One thing that has happened.
pub enum Update {
    /// A key, the mouse, another size of the terminal.
    Input(Event),
    /// The terminal cannot be read any more.
    InputEnded,
    Signal(Signal),
    /// Of one process: which session it is of, and what was seen.
    Process(u64, Seen),
    Machine(Box<Machine>),
    /// A snapshot was written, or why not.
    Saved(Result<(PathBuf, usize), String>),
}

/// What was seen of a process.
pub enum Seen {
    Look(Box<Looked>),
    /// More about threads of the last look.
    Details(BTreeMap<Lwp, Thread>),
    Times(Box<Stats>),
    Explained(Box<Snapshot>),
    /// It cannot be looked at any more, for this reason.
    Ended(String),
}

/// One look.
pub struct Looked {
    pub snapshot: Snapshot,
    /// Threads of it of which all was read, by what the screen shows.
    pub details: BTreeMap<Lwp, Thread>,
    /// CPU time of the look, and the time until the next one.
    pub took: Duration,
    pub every: Duration,
}

/// Blocks the signals for this thread and those that it starts, and begins to pass them on.
pub fn watch_signals(updates: Sender<Update>) -> io::Result<()> {
    let signals: SigSet = SIGNALS.into_iter().collect();
    signals.thread_block()?;
    let fd = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    thread::Builder::new().name("tg-signals".to_owned()).spawn(move || {
        while let Ok(info) = fd.read_signal() {
            let signal = info.and_then(|info| Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok());
            if signal.is_some_and(|signal| updates.send(Update::Signal(signal)).is_err()) {
                return;
            }
        }
    })?;
    Ok(())
}

/// Begins to pass on what is typed.
pub fn watch_input(updates: Sender<Update>) -> io::Result<()> {
    thread::Builder::new().name("tg-input".to_owned()).spawn(move || {
        loop {
            let update = match event::read() {
                Ok(event) => Update::Input(event),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Update::InputEnded,
            };
            let is_last = matches!(update, Update::InputEnded);
            if updates.send(update).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(())
}
