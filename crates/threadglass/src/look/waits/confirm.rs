//! No false alarm: whatever is called a hang is looked at once more, and must not have moved.

use super::abroad::Abroad;
use super::look::has_not_moved;
use super::survey::{Survey, read_objects};
use crate::model::{Finding, FindingKind, HolderStatus, SyncObject};
use crate::runtimes::{Class, Content};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a finding was made from.
pub(super) struct Confirm<'a, 'b> {
    pub(super) target: &'a dyn Target,
    pub(super) survey: &'a Survey<'b>,
    pub(super) facts: &'a BTreeMap<Lwp, LwpFacts>,
    pub(super) classes: &'a HashMap<RemoteAddr, Class>,
    pub(super) contents: &'a HashMap<RemoteAddr, Content>,
    pub(super) abroad: &'a Abroad,
}

impl Confirm<'_, '_> {
    /// Those of `findings` that still hold, and whether any did not.
    pub(super) fn check(&self, findings: Vec<Finding>, objects: &[SyncObject]) -> (Vec<Finding>, bool) {
        let hangs = findings.iter().filter(|finding| must_hold(finding));
        let lwps: BTreeSet<Lwp> = hangs.clone().flat_map(|finding| finding.threads.iter().copied()).collect();
        if lwps.is_empty() {
            return (findings, false);
        }
        let lwps: Vec<Lwp> = lwps.into_iter().collect();
        let addresses: BTreeSet<RemoteAddr> = hangs.flat_map(|finding| finding.objects.iter().copied()).collect();
        let classes: Vec<Class> = addresses.iter().filter_map(|address| self.classes.get(address)).copied().collect();
        // All threads asleep before and after: in between, none of them can have let go of anything.
        let before = self.abroad.facts_of(self.target, &lwps);
        let contents = read_objects(&self.survey.context, &classes);
        let after = self.abroad.facts_of(self.target, &lwps);
        let still = |(before, after): (&Option<LwpFacts>, &Option<LwpFacts>)| -> bool {
            let (Some(before), Some(after)) = (before, after) else { return false };
            self.first(before.lwp).is_some_and(|first| has_not_moved(first, before) && has_not_moved(before, after))
        };
        let resting: HashMap<Lwp, bool> = lwps.iter().copied().zip(before.iter().zip(&after).map(still)).collect();
        let same: HashMap<RemoteAddr, bool> = classes
            .iter()
            .zip(&contents)
            .map(|(class, now)| (class.address, same(self.contents.get(&class.address), now.as_ref())))
            .collect();
        let holds = |finding: &Finding| {
            let living = finding.threads.iter().filter(|lwp| self.first(**lwp).is_some());
            living.clone().all(|lwp| resting.get(lwp) == Some(&true))
                && finding.objects.iter().all(|address| same.get(address) == Some(&true))
                && self.the_gone_are_gone(finding, objects)
        };
        let mut dissolved = false;
        let kept = findings.into_iter().filter(|finding| {
            let keep = !must_hold(finding) || holds(finding);
            dissolved |= !keep;
            keep
        });
        let kept = kept.collect();
        (kept, dissolved)
    }

    /// What was known of a thread when the finding was made.
    fn first(&self, lwp: Lwp) -> Option<&LwpFacts> {
        self.facts.get(&lwp).or_else(|| self.abroad.facts.get(&lwp))
    }

    /// Whether the owners that are said to be gone have not come back.
    fn the_gone_are_gone(&self, finding: &Finding, objects: &[SyncObject]) -> bool {
        let of_finding = objects.iter().filter(|object| finding.objects.contains(&object.address));
        of_finding.flat_map(|object| &object.holders).filter(|holder| holder.status == HolderStatus::Gone).all(
            |holder| {
                let lwp = holder.recorded.and_then(|inner| self.target.lwp_of_inner(inner));
                !lwp.is_some_and(|lwp| self.target.has_thread(lwp))
            },
        )
    }
}

/// Whether a finding is about threads that stay where they are.
fn must_hold(finding: &Finding) -> bool {
    finding.kind.is_hang() || finding.kind == FindingKind::CondWithoutSignaller
}

/// Whether an object is in the hands it was in. Its other words may change: more threads may queue.
fn same(before: Option<&Content>, now: Option<&Content>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.owner == now.owner && before.state == now.state,
        _ => false,
    }
}
