//! Threads of other processes that hold what threads of the target wait for, by way of shared memory, and
//! what those wait for in turn.

use super::look::object;
use super::owners::Owners;
use super::survey::{Sleeper, Survey, read_objects};
use crate::look::Look;
use crate::model::{HolderStatus, SyncObject, Waiter};
use crate::proc::{MapEntry, map_at};
use crate::runtimes::glibc::Layout;
use crate::runtimes::{Class, Content};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Other processes that are looked into.
const MAX_PROCESSES: usize = 16;
/// Their threads.
const MAX_THREADS: usize = 256;

/// The other processes that matter.
#[derive(Default)]
pub(super) struct Abroad {
    processes: BTreeMap<Pid, Box<dyn Target>>,
    pub(super) facts: BTreeMap<Lwp, LwpFacts>,
    home: HashMap<Lwp, Pid>,
}

/// What is known of objects, and may be added to.
pub(super) struct Known<'k> {
    pub(super) objects: &'k mut BTreeMap<RemoteAddr, SyncObject>,
    pub(super) classes: &'k mut HashMap<RemoteAddr, Class>,
    pub(super) contents: &'k mut HashMap<RemoteAddr, Content>,
}

impl Abroad {
    /// Follows the holders in other processes.
    pub(super) fn follow(
        &mut self,
        target: &dyn Target,
        survey: &Survey<'_>,
        owners: &Owners<'_>,
        known: &mut Known<'_>,
    ) {
        let mut seen = HashSet::new();
        while seen.len() < MAX_THREADS {
            let strangers = known.objects.values().flat_map(|object| &object.holders);
            let strangers = strangers.filter(|holder| holder.status == HolderStatus::OtherProcess);
            let next = strangers.filter_map(|holder| Some((holder.pid?, holder.lwp?))).find(|one| !seen.contains(one));
            let Some((pid, lwp)) = next else { return };
            seen.insert((pid, lwp));
            self.home.insert(lwp, pid);
            let _ = self.follow_one(pid, lwp, target, survey, owners, known);
        }
    }

    /// What thread `lwp` of `pid` waits for, if that is something the target can see too.
    fn follow_one(
        &mut self,
        pid: Pid,
        lwp: Lwp,
        target: &dyn Target,
        survey: &Survey<'_>,
        owners: &Owners<'_>,
        known: &mut Known<'_>,
    ) -> Option<()> {
        if !self.processes.contains_key(&pid) {
            let other =
                target.other(pid).filter(|other| other.denial().is_none() && self.processes.len() < MAX_PROCESSES)?;
            self.processes.insert(pid, other);
        }
        let other = &**self.processes.get(&pid)?;
        let facts = other.facts(&[lwp]).pop().flatten()?;
        let sleeper = Sleeper { lwp, call: facts.syscall };
        self.facts.insert(lwp, facts);
        let layout = Layout::discover(other, other, &[]).ok();
        let wait = Survey::new(&Look::new(other), layout.as_ref(), []).waits(&[sleeper]).pop()?;
        let address = translate(other.maps(), target.maps(), wait.class.address)?;
        let class = Class { address, ..wait.class };
        let Known { objects, classes, contents } = known;
        let object = objects.entry(address).or_insert_with(|| {
            let content = read_objects(&survey.context, &[class]).pop().flatten();
            let found = object(target, &class, content.as_ref(), owners);
            classes.insert(address, class);
            contents.extend(content.map(|content| (address, content)));
            found
        });
        object.waiters.push(Waiter {
            lwp,
            thread: None,
            pid: Some(pid),
            side: class.side,
            timed: wait.futex.timed,
            stable: true,
            evidence: class.evidence,
        });
        Some(())
    }

    /// Facts of `lwps` now, wherever they live.
    pub(super) fn facts_of(&self, target: &dyn Target, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let (strangers, ours): (Vec<Lwp>, Vec<Lwp>) = lwps.iter().partition(|lwp| self.facts.contains_key(lwp));
        let mut found: HashMap<Lwp, LwpFacts> =
            target.facts(&ours).into_iter().flatten().map(|facts| (facts.lwp, facts)).collect();
        for lwp in strangers {
            let other = self.home.get(&lwp).and_then(|pid| self.processes.get(pid));
            found.extend(other.and_then(|other| other.facts(&[lwp]).pop().flatten()).map(|facts| (lwp, facts)));
        }
        lwps.iter().map(|lwp| found.remove(lwp)).collect()
    }
}

/// Where memory that is at `addr` in one process is in another one that shares it.
fn translate(theirs: &[MapEntry], ours: &[MapEntry], addr: RemoteAddr) -> Option<RemoteAddr> {
    let map = map_at(theirs, addr).filter(|map| map.shared && map.inode != 0)?;
    let at = map.offset.checked_add(addr.0 - map.start.0)?;
    let same = |ours: &&MapEntry| {
        let size = ours.end.0 - ours.start.0;
        ours.shared
            && (ours.inode, &ours.name) == (map.inode, &map.name)
            && at.checked_sub(ours.offset).is_some_and(|within| within < size)
    };
    let ours = ours.iter().find(same)?;
    ours.start.checked_add(at - ours.offset)
}
