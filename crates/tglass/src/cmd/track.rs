//! Commands that put the agent into a process, for as long as they look.

use crate::cli::{InjectArgs, WhichTarget};
use anyhow::{Result, bail};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use threadglass::model::Snapshot;
use threadglass::proc::syscall_name;
use threadglass::target::{Live, Target};
use threadglass::track::inject::{self, Injected, Options};
use threadglass::track::{self, Agent};
use threadglass::{Interrupt, Pid, RemoteAddr};

/// What was done to the process.
#[derive(Debug, Serialize)]
pub struct Tracked {
    /// For how long a thread was stopped, in microseconds; `None` if the agent was at work already.
    pause_us: Option<u64>,
    /// Slots that were patched.
    slots: u32,
    /// Slots that could not be.
    missed: u32,
    /// Whether all were restored.
    restored: bool,
    /// Name of the system call that returned early.
    interrupted: Option<&'static str>,
}

impl Tracked {
    /// In words.
    pub fn text(&self) -> String {
        let mut out = match self.pause_us {
            Some(pause) => format!("put the agent into the process: one thread was stopped for {pause} us"),
            None => "the agent was at work already".to_owned(),
        };
        out += &format!("; {} slots were patched", self.slots);
        if self.missed > 0 {
            out += &format!(" ({} could not be)", self.missed);
        }
        out += if self.restored { " and are restored\n" } else { " and stay so: another tool tracks the process\n" };
        if let Some(call) = self.interrupted {
            out += &format!("note: the stop made {call} return early in one thread\n");
        }
        out
    }
}

/// Puts the agent into a process that was not started with it.
pub fn attach(pid: Pid, args: &InjectArgs) -> Result<Option<Injected>> {
    let live = Live::open(pid)?;
    if inject::is_preloaded(&live) {
        return Ok(None);
    }
    Ok(Some(inject::attach(pid, &Options { exact: args.exact, size: args.size, force: args.force })?))
}

/// Takes its hands off again.
pub fn end(injected: Option<Injected>) -> Option<Tracked> {
    let injected = injected?;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (slots, missed) = injected.slots();
    let (pause_us, interrupted) = (injected.pause.map(micros), injected.interrupted.and_then(syscall_name));
    // A process that has ended has nothing to restore.
    let restored = injected.detach().unwrap_or(true);
    Some(Tracked { pause_us, slots, missed, restored, interrupted })
}

/// Counting for a time, before a look.
pub struct Tracking {
    injected: Option<Injected>,
    start: HashMap<RemoteAddr, track::Tracked>,
}

impl Tracking {
    /// Counts for so long, or until Ctrl-C.
    pub fn for_time(target: &WhichTarget, time: Duration, force: bool) -> Result<Self> {
        let WhichTarget::Process(pid) = target else { bail!("--track is for processes: a core does nothing any more") };
        let interrupt = Interrupt::watch()?;
        let injected = attach(Pid(*pid), &InjectArgs { exact: false, size: None, force })?;
        let live = Live::open(Pid(*pid))?;
        let objects = Agent::find(&live)?.map(|agent| agent.objects(&live)).unwrap_or_default();
        interrupt.wait(time);
        Ok(Self { injected, start: objects.into_iter().map(|object| (object.address, object)).collect() })
    }

    /// Leaves in `snapshot` what was counted in this time.
    pub fn end(self, target: &dyn Target, snapshot: &mut Snapshot) -> Option<Tracked> {
        if let Ok(Some(agent)) = Agent::find(target) {
            for object in &mut snapshot.objects {
                let now = agent.object(target, object.address).filter(|now| now.kind == object.kind);
                let counted = now.and_then(|now| now.since(self.start.get(&object.address)));
                object.stats = counted.map(|counted| counted.stats());
            }
        }
        let tracked = end(self.injected);
        // One thread was stopped, once.
        let pause = tracked.as_ref().and_then(|tracked| tracked.pause_us).unwrap_or(0);
        snapshot.pause_us += pause;
        snapshot.longest_pause_us = snapshot.longest_pause_us.max(pause);
        tracked
    }
}
