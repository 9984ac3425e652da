//! What a core's notes tell of its threads.

use super::Core;
use super::notes::ThreadNotes;
use crate::Lwp;
use crate::arch::Registers;
use crate::model::{CoreWriter, Evidence, SignalSet, ThreadState};
use crate::proc::KernelState;
use crate::target::{KernelFacts, LwpFacts, TargetError};

/// The kernel ends the other threads by this before it dumps them.
const SIGKILL: u64 = 1 << 8;

impl Core {
    fn facts_of(&self, thread: &ThreadNotes) -> LwpFacts {
        let status = &thread.status;
        let by_kernel = self.notes.writer == CoreWriter::Kernel;
        let is_leader = status.lwp == self.pid.leader();
        LwpFacts {
            // The process's name is that of its main thread.
            name: self.notes.process.as_ref().filter(|_| by_kernel && is_leader).map(|process| process.name.clone()),
            blocked: by_kernel.then_some(status.blocked),
            pending: by_kernel.then_some(SignalSet(status.pending.0 & !SIGKILL)),
            // The leader's record has the time of the whole process.
            cpu_ticks: (by_kernel && !is_leader).then_some(status.cpu_ticks),
            // A thread that sleeps in a call was interrupted in it to be dumped.
            ..LwpFacts::from_registers(status.lwp, &status.registers).with_call_as_made(self)
        }
    }

    /// A leader that is not among the threads had ended before the others: main called `pthread_exit`.
    fn ended_leader(&self) -> Option<Lwp> {
        let leader = self.pid.leader();
        let ended = self.notes.are_whole() && self.notes.process.is_some() && self.notes.thread(leader).is_none();
        ended.then_some(leader)
    }
}

impl KernelFacts for Core {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        let dumped = self.notes.threads.iter().map(|thread| thread.status.lwp);
        Ok(self.ended_leader().into_iter().chain(dumped).collect())
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let ended = self.ended_leader();
        let of = |lwp: &Lwp| match self.notes.thread(*lwp) {
            Some(thread) => Some(self.facts_of(thread)),
            None if ended == Some(*lwp) => Some(LwpFacts {
                running: Some((ThreadState::Zombie, Evidence::Derived)),
                ..LwpFacts::bare(*lwp, KernelState::Zombie)
            }),
            None => None,
        };
        lwps.iter().map(of).collect()
    }

    fn thread_count(&self) -> Option<usize> {
        Some(self.notes.threads.len() + usize::from(self.ended_leader().is_some()))
    }

    fn has_thread(&self, lwp: Lwp) -> bool {
        self.notes.thread(lwp).is_some() || self.ended_leader() == Some(lwp)
    }

    fn registers_at_rest(&self, lwp: Lwp) -> Option<Registers> {
        self.registers(lwp).map(|registers| registers.frame())
    }
}
