//! Threads of other processes that hold what threads of the target wait for, by way of shared memory, and
//! what those wait for in turn.

use super::look::{SeenLocks, object};
use super::owners::Owners;
use super::survey::{Survey, read_objects};
use crate::look::{Look, facts_now};
use crate::model::{HolderStatus, Waiter};
use crate::proc::{MapEntry, map_at};
use crate::runtimes::Class;
use crate::runtimes::{LibcLayout, glibc, musl};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Other processes that are looked into.
const MAX_PROCESSES: usize = 16;
/// Their threads.
const MAX_THREADS: usize = 256;

/// The other processes that matter.
#[derive(Default)]
pub(super) struct OtherProcesses {
    processes: BTreeMap<Pid, Box<dyn Target>>,
    pub(super) facts: BTreeMap<Lwp, LwpFacts>,
    home: HashMap<Lwp, Pid>,
}

impl SeenLocks {
    /// Follows the holders in other processes.
    pub(super) fn follow_other_processes(&mut self, survey: &Survey<'_>, owners: &Owners<'_>) {
        let mut followed = HashSet::new();
        while followed.len() < MAX_THREADS {
            let holders = self.objects.values().flat_map(|object| &object.holders);
            let strangers = holders.filter(|holder| holder.status == HolderStatus::OtherProcess);
            let mut strangers = strangers.filter_map(|holder| Some((holder.pid?, holder.lwp?)));
            let Some((pid, lwp)) = strangers.find(|one| followed.insert(*one)) else { return };
            self.others.home.insert(lwp, pid);
            let _ = self.follow_one(pid, lwp, survey, owners);
        }
    }

    /// What thread `lwp` of `pid` waits for, if that is something the target can see too.
    fn follow_one(&mut self, pid: Pid, lwp: Lwp, survey: &Survey<'_>, owners: &Owners<'_>) -> Option<()> {
        let target = survey.context.target;
        let OtherProcesses { processes, facts: known, .. } = &mut self.others;
        if !processes.contains_key(&pid) {
            let other =
                target.other(pid).filter(|other| other.denial().is_none() && processes.len() < MAX_PROCESSES)?;
            processes.insert(pid, other);
        }
        let other = &**processes.get(&pid)?;
        let facts = other.facts(&[lwp]).pop().flatten()?;
        let call = facts.syscall;
        let glibc = glibc::Layout::discover(other, other, &[]).ok();
        let musl = match glibc {
            Some(_) => None,
            None => musl::Layout::discover(other, std::slice::from_ref(&facts)).map(|(layout, _)| layout),
        };
        known.insert(lwp, facts);
        let libc = glibc.as_ref().map(LibcLayout::Glibc).or(musl.as_ref().map(LibcLayout::Musl));
        let wait = Survey::new(&Look::new(other), libc, &[]).waits(&[(lwp, call?)]).pop()?;
        let address = translate(other.maps(), target.maps(), wait.class.address)?;
        let class = Class { address, ..wait.class };
        let object = self.objects.entry(address).or_insert_with(|| {
            let content = read_objects(&survey.context, &[class]).pop().flatten();
            let found = object(target, &class, content.as_ref(), owners);
            self.read.insert(address, (class, content));
            found
        });
        object.waiters.push(Waiter { pid: Some(pid), ..wait.waiter(None, true) });
        Some(())
    }
}

impl OtherProcesses {
    /// Facts of `lwps` now, wherever they live.
    pub(super) fn facts_of(&self, target: &dyn Target, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let (strangers, ours): (Vec<Lwp>, Vec<Lwp>) = lwps.iter().partition(|lwp| self.facts.contains_key(lwp));
        let mut found: HashMap<Lwp, LwpFacts> = facts_now(target, &ours);
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
