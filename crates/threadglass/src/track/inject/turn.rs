//! One tool at a time puts the agent into a process, or takes it off: two that did so at once would each load one.

use crate::Pid;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::time::{Duration, Instant};

/// As long as this lives it is our turn. The end of our process, in whatever way, is the end of it.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: Option<Flock<File>>,
}

/// Nobody takes longer than this, unless by malice: then we go on without.
const PATIENCE: Duration = Duration::from_secs(12);

impl Turn {
    /// Waits for our turn with a process. Where its directory cannot be opened other calls will tell why.
    pub(super) fn take(pid: Pid) -> Self {
        let begun = Instant::now();
        let mut file = File::open(format!("/proc/{pid}")).ok();
        while let Some(open) = file {
            match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => return Self { _locked: Some(locked) },
                Err(_) if begun.elapsed() > PATIENCE => break,
                Err((open, _)) => file = Some(open),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { _locked: None }
    }
}
