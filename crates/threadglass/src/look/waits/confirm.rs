//! No false alarm: whatever is called a hang is looked at once more, and must not have moved.

use super::look::{SeenLocks, has_not_moved};
use super::survey::read_objects;
use crate::model::{Finding, HolderStatus, SyncObject};
use crate::runtimes::{Class, Content, Context, FutexWait};
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a finding was made from.
pub(super) struct Confirm<'a, 'b> {
    pub(super) context: &'a Context<'b>,
    pub(super) facts: &'a BTreeMap<Lwp, LwpFacts>,
    pub(super) seen: &'a SeenLocks,
    /// Whether every thread of the process was seen to wait.
    pub(super) is_all: bool,
}

impl Confirm<'_, '_> {
    /// Those of `findings` that still hold, and whether any did not.
    pub(super) fn check(&self, mut findings: Vec<Finding>, objects: &[SyncObject]) -> (Vec<Finding>, bool) {
        let hangs = findings.iter().filter(|finding| must_hold(finding));
        let mut lwps: BTreeSet<Lwp> = hangs.clone().flat_map(|finding| finding.threads.iter().copied()).collect();
        if hangs.clone().any(|finding| self.concerns_all(finding)) {
            lwps.extend(self.facts.values().filter(|facts| !facts.state.has_ended()).map(|facts| facts.lwp));
        }
        // Nothing moves in a core, and what it has not of an object cannot have changed.
        if lwps.is_empty() || self.context.target.identity().core.is_some() {
            return (findings, false);
        }
        let lwps: Vec<Lwp> = lwps.into_iter().collect();
        let addresses: BTreeSet<RemoteAddr> = hangs.flat_map(|finding| finding.objects.iter().copied()).collect();
        let before = addresses.iter().filter_map(|address| self.seen.read.get(address));
        let (classes, contents): (Vec<Class>, Vec<_>) = before.cloned().unzip();
        // All threads asleep before and after: in between, none of them can have let go of anything.
        let before = self.seen.others.facts_of(self.context.target, &lwps);
        let contents_now = read_objects(self.context, &classes);
        let after = self.seen.others.facts_of(self.context.target, &lwps);
        let rests = |before: &LwpFacts, after: &LwpFacts| {
            self.first_facts(before.lwp)
                .is_some_and(|first| has_not_moved(first, before) && has_not_moved(before, after))
        };
        let pairs = before.iter().zip(&after).filter_map(|(before, after)| before.as_ref().zip(after.as_ref()));
        let resting: HashSet<Lwp> = pairs.filter(|(before, after)| rests(before, after)).map(|it| it.0.lwp).collect();
        let is_same = contents.iter().zip(&contents_now).map(|pair| matches!(pair, (Some(a), Some(b)) if same(a, b)));
        let unchanged = classes.iter().zip(is_same).filter(|(_, is_same)| *is_same);
        let unchanged: HashSet<RemoteAddr> = unchanged.map(|(class, _)| class.address).collect();
        // A thread that began after the others were listed may do what they wait for.
        let is_new = self.is_all
            && self.context.target.lwps().is_ok_and(|now| now.iter().any(|lwp| !self.facts.contains_key(lwp)));
        let holds = |finding: &Finding| {
            let mut living = finding.threads.iter().filter(|lwp| self.first_facts(**lwp).is_some());
            let waits_on = |lwp| self.waits_on(lwp, finding, objects, &resting, after.iter().flatten());
            living.all(|lwp| resting.contains(lwp) || waits_on(*lwp))
                && (!self.concerns_all(finding) || !is_new && lwps.iter().all(|lwp| resting.contains(lwp)))
                && finding.objects.iter().all(|address| unchanged.contains(address))
                && self.owners_are_still_gone(finding, objects)
        };
        let all = findings.len();
        findings.retain(|finding| !must_hold(finding) || holds(finding));
        let dissolved = findings.len() < all;
        (findings, dissolved)
    }

    /// Whether a thread that moves goes on waiting all the same: for what a thread at rest holds, in a wait that ends only
    /// when the thread gets that.
    fn waits_on<'f>(
        &self,
        lwp: Lwp,
        finding: &Finding,
        objects: &[SyncObject],
        resting: &HashSet<Lwp>,
        mut now: impl Iterator<Item = &'f LwpFacts>,
    ) -> bool {
        let is_awaited = |object: &&SyncObject| {
            finding.objects.contains(&object.address) && object.waiters.iter().any(|waiter| waiter.lwp == lwp)
        };
        let Some(object) = objects.iter().find(is_awaited) else { return false };
        let Some((class, _)) = self.seen.read.get(&object.address).filter(|(class, _)| class.keeps_waiting()) else {
            return false;
        };
        let is_held = matches!(object.holders.as_slice(), [one] if one.lwp.is_some_and(|lwp| resting.contains(&lwp)));
        let call = now.find(|facts| facts.lwp == lwp).and_then(|facts| facts.syscall);
        is_held && call.as_ref().and_then(FutexWait::of).is_some_and(|futex| class.contains(futex.word))
    }

    /// Whether a finding rests on what every thread of the process does.
    fn concerns_all(&self, finding: &Finding) -> bool {
        self.is_all && finding.kind.is_unwoken()
    }

    /// What was known of a thread when the finding was made.
    fn first_facts(&self, lwp: Lwp) -> Option<&LwpFacts> {
        self.facts.get(&lwp).or_else(|| self.seen.others.facts.get(&lwp))
    }

    /// Whether the owners that are said to be gone have not come back.
    fn owners_are_still_gone(&self, finding: &Finding, objects: &[SyncObject]) -> bool {
        let of_finding = objects.iter().filter(|object| finding.objects.contains(&object.address));
        let holders = of_finding.flat_map(|object| &object.holders);
        holders.filter(|holder| holder.status == HolderStatus::Gone).all(|holder| {
            let lwp = holder.recorded.and_then(|inner| self.context.target.lwp_of_inner(inner));
            !lwp.is_some_and(|lwp| self.context.target.has_thread(lwp))
        })
    }
}

/// Whether a finding is about threads that stay where they are.
fn must_hold(finding: &Finding) -> bool {
    finding.kind.is_hang() || finding.kind.is_unwoken()
}

/// Whether an object is in the hands it was in. Its other words may change: more threads may queue.
fn same(before: &Content, now: &Content) -> bool {
    before.owner == now.owner && before.state == now.state
}
