//! A command that is profiled from its first instruction.

use super::{Options, ProfileError};
use crate::Pid;
use crate::perf::{Begin, Ticker};
use crate::sys::limits;
use crate::sys::spawn::HeldCommand;
use nix::sys::signal::Signal;
use std::process::{Child, Command};

/// A command that has just been executed, with the clock that ticks for it.
#[derive(Debug)]
pub struct Launched {
    /// The command. It is a child of ours: whoever has this waits for it.
    pub child: Child,
    /// What it is called until it can be asked.
    pub(super) name: String,
    /// Until it is recorded.
    pub(super) ticker: Option<Ticker>,
}

impl Launched {
    /// Starts `command`. Its ticks are counted from its first instruction on.
    pub fn start(command: Command, options: &Options) -> Result<Self, ProfileError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |error| ProfileError::Launch(name.clone(), error);
        let held = HeldCommand::fork(command).map_err(failed)?;
        let ticker = match Ticker::open(Pid(held.pid()), options.ticks(Begin::AtExec)) {
            Ok(ticker) => Some(ticker),
            Err(error) => {
                held.cancel();
                return Err(error.into());
            }
        };
        let child = held.release().map_err(failed)?;
        // It does not inherit this any more; each program that is followed takes some files.
        limits::raise_open_files();
        Ok(Self { child, name, ticker })
    }

    /// Gives the command a signal that was meant for both of us and has reached only us.
    pub fn pass_on(pid: u32, asked: crate::sys::interrupt::Asked) {
        if !asked.from_terminal
            && let (Ok(pid), Ok(signal)) = (i32::try_from(pid), Signal::try_from(asked.signal))
        {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }
}
