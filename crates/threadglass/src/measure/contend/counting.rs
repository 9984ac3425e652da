//! Counting in a process for a time, before a look.

use super::ContendError;
use crate::act::inject;
use crate::act::inject::{InjectError, Injected, Options};
use crate::model::{InjectionReport, Snapshot};
use crate::sys::interrupt::Interrupt;
use crate::table::{Agent, Tracked};
use crate::target::{Live, Target};
use crate::{Pid, RemoteAddr};
use std::collections::HashMap;
use std::time::Duration;

/// Puts the agent into a process that was not started with it.
pub(super) fn attach(pid: Pid, options: &Options) -> Result<Option<Injected>, InjectError> {
    let is_preloaded = inject::is_preloaded(&Live::open(pid)?);
    (!is_preloaded).then(|| inject::attach(pid, options)).transpose()
}

/// What had been counted at the beginning.
pub struct Counting {
    injected: Option<Injected>,
    start: HashMap<RemoteAddr, Tracked>,
}

impl Counting {
    /// Counts for `time`, or until `interrupt` is asked.
    pub fn for_time(pid: Pid, options: &Options, time: Duration, interrupt: &Interrupt) -> Result<Self, ContendError> {
        let injected = attach(pid, options)?;
        let live = Live::open(pid)?;
        let objects = Agent::find(&live)?.map(|agent| agent.objects(&live)).unwrap_or_default();
        interrupt.wait(time);
        Ok(Self { injected, start: objects.into_iter().map(|object| (object.address, object)).collect() })
    }

    /// Leaves in `snapshot` what was counted in this time, and removes the hooks.
    pub fn end(self, target: &dyn Target, snapshot: &mut Snapshot) -> Option<InjectionReport> {
        if let Ok(Some(agent)) = Agent::find(target) {
            for object in &mut snapshot.objects {
                let now = agent.object(target, object.address).filter(|now| now.kind == object.kind);
                let counted = now.and_then(|now| now.since(self.start.get(&object.address)));
                object.stats = counted.map(|counted| counted.stats());
            }
        }
        let report = self.injected.map(Injected::finish);
        // One thread was stopped, once.
        let pause = report.as_ref().and_then(|report| report.pause_us).unwrap_or(0);
        snapshot.pause_us += pause;
        snapshot.longest_pause_us = snapshot.longest_pause_us.max(pause);
        report
    }
}
