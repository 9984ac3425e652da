//! Hold everybody concerned, write, let go.

use super::apply::Applied;
use super::kick::{Kicked, hold};
use crate::model::{Holder, HolderStatus, NotKicked, SetPlan};
use crate::runtimes::SetError;
use crate::sys::task::status_of;
use crate::{Lwp, Pid};

/// The threads that have to stand still while an object is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Holders that live and do not wait for it: they must not unlock in the middle of it.
    pub holders: Vec<(Pid, Lwp)>,
    /// Those who look at the object again when they are let go.
    pub waiters: Vec<(Pid, Lwp)>,
}

impl Concerned {
    /// Those whom `plan` concerns, for an object of process `pid` with these `holders`. The threads `elsewhere`, of
    /// other processes, wait for it too.
    pub fn by(plan: &SetPlan, pid: Pid, holders: &[Holder], elsewhere: &[(Pid, Lwp)]) -> Self {
        let elsewhere = if plan.wakes { elsewhere } else { &[] };
        let is_elsewhere = |lwp: &Lwp| elsewhere.iter().any(|(_, other)| other == lwp);
        let own = plan.kick.iter().filter(|lwp| !is_elsewhere(lwp)).map(|lwp| (pid, *lwp));
        let waiters = distinct(own.chain(elsewhere.iter().copied()));
        let is_living = |status| matches!(status, HolderStatus::Alive | HolderStatus::OtherProcess);
        let living = holders.iter().filter(|holder| !plan.words.is_empty() && is_living(holder.status));
        let living = living.filter_map(|holder| Some((holder.pid.unwrap_or(pid), holder.lwp?)));
        Self { holders: distinct(living.filter(|thread| !waiters.contains(thread))), waiters }
    }

    /// All of them, holders first.
    pub fn all(&self) -> impl Iterator<Item = (Pid, Lwp)> {
        self.holders.iter().chain(&self.waiters).copied()
    }

    /// Keeps those of whom `is_kept` says so.
    pub fn retain(&mut self, is_kept: impl Fn(Pid, Lwp) -> bool) {
        self.holders.retain(|(pid, lwp)| is_kept(*pid, *lwp));
        self.waiters.retain(|(pid, lwp)| is_kept(*pid, *lwp));
    }

    /// Refuses if somebody else traces one of them: it could not be held still, and would not look again.
    pub fn check_untraced(&self) -> Result<(), SetError> {
        let tracer = |(pid, lwp): (Pid, Lwp)| {
            status_of(pid, lwp).map(|status| status.tracer).filter(|tracer| *tracer != 0).map(|tracer| (lwp, tracer))
        };
        match self.all().find_map(tracer) {
            Some((lwp, tracer)) => {
                Err(SetError::NotWoken(lwp, format!("process {tracer} traces it; detach that first")))
            }
            None => Ok(()),
        }
    }

    fn is_waiter(&self, not: &NotKicked) -> bool {
        self.waiters.contains(&(not.pid, not.lwp))
    }
}

/// **Stops** the threads `concerned`, runs `write`, and lets them go: who waits looks at the object again. `write` is
/// given the waiters that could not be stopped, and may refuse because of them.
pub fn carry_out<E>(
    concerned: &Concerned,
    write: impl FnOnce(&[NotKicked]) -> Result<Applied, E>,
) -> Result<(Applied, Kicked), E> {
    let (applied, mut kicked) = hold(&concerned.all().collect::<Vec<_>>(), |refused| {
        write(&refused.iter().filter(|not| concerned.is_waiter(not)).cloned().collect::<Vec<_>>())
    });
    // Holders were only held still.
    kicked.kicked.retain(|lwp| concerned.waiters.iter().any(|(_, waiter)| waiter == lwp));
    kicked.not_kicked.retain(|not| concerned.is_waiter(not));
    Ok((applied?, kicked))
}

fn distinct(threads: impl Iterator<Item = (Pid, Lwp)>) -> Vec<(Pid, Lwp)> {
    let mut unique = Vec::new();
    for thread in threads {
        if !unique.contains(&thread) {
            unique.push(thread);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;
    use crate::model::{Evidence, Family, SyncKind, SyncObject, WordWrite};
    use crate::runtimes::empty_plan;

    const PID: Pid = Pid(1);

    fn holder(lwp: i32, pid: Option<Pid>, status: HolderStatus) -> Holder {
        Holder { lwp: Some(Lwp(lwp)), pid, status, ..Holder::default() }
    }

    fn plan() -> SetPlan {
        let address = RemoteAddr(0x1000);
        let object = SyncObject::bare(address, SyncKind::Mutex, Family::Pthread, Evidence::Recorded);
        SetPlan {
            words: vec![WordWrite { address, field: "lock", old: 1, new: 0 }],
            wakes: true,
            kick: vec![Lwp(5), Lwp(6), Lwp(30)],
            ..empty_plan(&object, &[], 0, "")
        }
    }

    #[test]
    fn holders_that_live_and_all_waiters_each_in_its_process() {
        let elsewhere = [(Pid(3), Lwp(30))];
        let holders = [
            holder(2, None, HolderStatus::Alive),
            holder(4, None, HolderStatus::Gone),
            holder(6, None, HolderStatus::Alive),
            holder(31, Some(Pid(3)), HolderStatus::OtherProcess),
        ];
        let concerned = Concerned::by(&plan(), PID, &holders, &elsewhere);
        assert_eq!(concerned.holders, [(PID, Lwp(2)), (Pid(3), Lwp(31))]);
        assert_eq!(concerned.waiters, [(PID, Lwp(5)), (PID, Lwp(6)), (Pid(3), Lwp(30))]);
    }

    #[test]
    fn nobody_without_need() {
        let plan = SetPlan { words: Vec::new(), wakes: false, kick: Vec::new(), ..plan() };
        let holders = [holder(2, None, HolderStatus::Alive)];
        assert_eq!(Concerned::by(&plan, PID, &holders, &[(Pid(3), Lwp(30))]), Concerned::default());
    }
}
