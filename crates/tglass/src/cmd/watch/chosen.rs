//! Which processes are watched.

use super::super::machine::Among;
use super::super::process_name;
use crate::cli::{TargetWord, WatchArgs};
use anyhow::Result;
use std::collections::HashMap;
use std::ffi::OsString;
use threadglass::Pid;
use threadglass::target::Live;

/// How often it is asked anew whether a process has a name or is in a group: it may execute another program under the same name.
const AGAIN: u64 = 30;

/// Which processes are watched.
pub struct Chosen {
    /// Those named by their numbers, with when they were started.
    pids: HashMap<Pid, u64>,
    names: Vec<OsString>,
    among: Among,
    all: bool,
    family: Vec<Pid>,
    /// What was found out of a process, when, and under which name.
    known: HashMap<Pid, Answer>,
    look: u64,
}

struct Answer {
    start_time: u64,
    name: String,
    is_wanted: bool,
    look: u64,
}

impl Chosen {
    /// Processes that are named by their numbers must be there.
    pub fn new(args: &WatchArgs) -> Result<Self> {
        let mut pids = HashMap::new();
        let mut names = Vec::new();
        let words = args.targets.iter().cloned().chain(args.pids.iter().copied().map(TargetWord::Pid));
        for word in words {
            match word {
                TargetWord::Pid(pid) => drop(pids.insert(Pid(pid), Live::open(Pid(pid))?.leader_stat().start_time)),
                TargetWord::Other(name) => names.push(name),
            }
        }
        let among = Among::new(&args.among)?;
        let all = args.all || among.is_narrow();
        let family = process_name::family();
        Ok(Self { pids, names, among, all, family, known: HashMap::new(), look: 0 })
    }

    /// A look begins: what was found out of processes that are gone is forgotten now and then.
    pub fn begin(&mut self) {
        self.look += 1;
        let look = self.look;
        self.known.retain(|_, answer| answer.look + AGAIN > look);
    }

    /// Whether a process is watched.
    pub fn has(&mut self, pid: Pid, name: &str, start_time: u64) -> bool {
        if let Some(start) = self.pids.get(&pid) {
            return *start == start_time;
        }
        if let Some(known) = self.known.get(&pid)
            && known.start_time == start_time
            && known.name == name
        {
            return known.is_wanted;
        }
        let is_called = || self.names.iter().any(|wanted| process_name::is_called(pid, wanted));
        // Who watches a name is not meant by it, nor the shell that has it in its arguments.
        let is_named = !self.names.is_empty() && !self.family.contains(&pid) && is_called();
        let is_wanted = is_named || self.all && (!self.among.is_narrow() || self.among.has(pid));
        self.known.insert(pid, Answer { start_time, name: name.to_owned(), is_wanted, look: self.look });
        is_wanted
    }

    /// Whether all that was to be watched has ended, and nothing else will come.
    pub fn is_over(&self, is_alive: impl Fn(Pid, u64) -> bool) -> bool {
        self.names.is_empty() && !self.all && !self.pids.iter().any(|(pid, start)| is_alive(*pid, *start))
    }
}
