//! What the kernel knows of a debugger's process, or else what the registers of its threads tell.

use super::{ProcService, Service};
use crate::proc::{KernelState, SyscallFile};
use crate::target::{Elsewhere, KernelFacts, LwpFacts, SchedCounters, TargetError};
use crate::{InnerTid, Lwp};

impl<S: ProcService> Service<'_, S> {
    /// The threads on libc's lists.
    fn listed(&self) -> &[Lwp] {
        self.lwps.get_or_init(|| {
            let listed = self.known.and_then(|known| known.list.lwps(self));
            if listed.is_none() {
                self.fail();
            }
            listed.unwrap_or_default()
        })
    }

    fn by_registers(&self, lwp: Lwp) -> Option<LwpFacts> {
        let registers = self.debugger()?.registers(lwp).inspect_err(|_| self.fail());
        Some(LwpFacts::from_registers(lwp, &registers.ok()?).with_call_as_made(self))
    }

    /// A thread that its tracer stopped may have been stopped at the end of its call as well as in it.
    pub fn look_through_stop(&self, facts: &mut LwpFacts) {
        let (KernelState::Traced, Some(SyscallFile::Inside { sp, pc, .. })) = (facts.state, facts.syscall) else {
            return;
        };
        // A debugger that is not its tracer cannot tell.
        let registers = self.debugger().and_then(|debugger| debugger.registers(facts.lwp).ok());
        if registers.is_some_and(|registers| registers.asleep_in().is_none()) {
            facts.syscall = Some(SyscallFile::Outside { sp, pc });
        }
    }
}

impl<S: ProcService> KernelFacts for Service<'_, S> {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        self.live().map_or_else(|| Ok(self.listed().to_vec()), KernelFacts::lwps)
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let Some(live) = self.live() else { return lwps.iter().map(|lwp| self.by_registers(*lwp)).collect() };
        let mut facts = live.facts(lwps);
        facts.iter_mut().flatten().for_each(|facts| self.look_through_stop(facts));
        facts
    }

    fn thread_count(&self) -> Option<usize> {
        self.live().map_or_else(|| Some(self.listed().len()), KernelFacts::thread_count)
    }

    fn has_thread(&self, lwp: Lwp) -> bool {
        self.live().map_or_else(|| self.listed().contains(&lwp), |live| live.has_thread(lwp))
    }

    fn sched_counters(&self, lwp: Lwp) -> Option<SchedCounters> {
        self.live()?.sched_counters(lwp)
    }

    fn elsewhere(&self, inner: InnerTid) -> Elsewhere {
        self.live().map_or(Elsewhere::Unknown, |live| live.elsewhere(inner))
    }

    fn tracer_name(&self, tracer: i32) -> Option<Vec<u8>> {
        self.live()?.tracer_name(tracer)
    }
}
