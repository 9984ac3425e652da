//! What a core's notes tell of its threads.

use super::Core;
use super::notes::ThreadNotes;
use crate::model::{CoreWriter, Evidence, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::signals::SignalSet;
use crate::target::{KernelFacts, LwpFacts, SchedCounters, TargetError};
use crate::{InnerTid, Lwp};

/// What a system call answers when something interrupts its sleep: `EINTR`, or one of the codes by
/// which the kernel starts the call again (`ERESTARTSYS` and its kin).
const INTERRUPTED: [i64; 5] = [-4, -512, -513, -514, -516];

/// The kernel ends the other threads by this before it dumps them.
const SIGKILL: u64 = 1 << 8;

impl Core {
    fn facts_of(&self, thread: &ThreadNotes) -> LwpFacts {
        let status = &thread.status;
        let registers = &status.registers;
        let (sp, pc) = (registers.sp(), registers.pc());
        // A thread that sleeps in a call was interrupted in it to be dumped. One that came into the
        // kernel in another way, or whose call was done, was on its way through the program.
        let asleep = registers.call() >= 0 && INTERRUPTED.contains(&registers.result());
        let (state, judged, syscall) = match asleep {
            true => {
                let (number, args) = (registers.call(), registers.call_arguments());
                (KernelState::Sleeping, ThreadState::Sleep, SyscallFile::Inside { number, args, sp, pc })
            }
            false => (KernelState::Running, ThreadState::Active, SyscallFile::Outside { sp, pc }),
        };
        let by_kernel = self.notes.writer == CoreWriter::Kernel;
        let is_leader = status.lwp == self.pid.leader();
        LwpFacts {
            lwp: status.lwp,
            inner: InnerTid(status.lwp.0),
            // The process's name is that of its main thread.
            name: self.notes.process.as_ref().filter(|_| by_kernel && is_leader).map(|process| process.name.clone()),
            state,
            syscall: Some(syscall),
            blocked: by_kernel.then_some(status.blocked),
            pending: by_kernel.then_some(SignalSet(status.pending.0 & !SIGKILL)),
            policy: None,
            priority: None,
            nice: None,
            boosted: None,
            // The leader's record has the time of the whole process.
            cpu_ticks: (by_kernel && !is_leader).then_some(status.cpu_ticks),
            switches: None,
            tracer: 0,
            robust_head: None,
            thread_pointer: Some(registers.thread_pointer()).filter(|pointer| !pointer.is_null()),
            running: Some((judged, Evidence::Derived)),
        }
    }

    /// A leader that is not among the threads had ended before the others: main called `pthread_exit`.
    fn ended_leader(&self) -> Option<LwpFacts> {
        let leader = self.pid.leader();
        (self.notes.are_whole() && self.notes.process.is_some() && !self.by_lwp.contains_key(&leader)).then(|| LwpFacts {
            lwp: leader,
            inner: InnerTid(leader.0),
            name: None,
            state: KernelState::Zombie,
            syscall: None,
            blocked: None,
            pending: None,
            policy: None,
            priority: None,
            nice: None,
            boosted: None,
            cpu_ticks: None,
            switches: None,
            tracer: 0,
            robust_head: None,
            thread_pointer: None,
            running: Some((ThreadState::Zombie, Evidence::Derived)),
        })
    }
}

impl KernelFacts for Core {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        let ended = self.ended_leader().map(|facts| facts.lwp);
        Ok(ended.into_iter().chain(self.notes.threads.iter().map(|thread| thread.status.lwp)).collect())
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        let ended = self.ended_leader();
        let of = |lwp: &Lwp| match self.thread(*lwp) {
            Some(thread) => Some(self.facts_of(thread)),
            None => ended.clone().filter(|facts| facts.lwp == *lwp),
        };
        lwps.iter().map(of).collect()
    }

    fn thread_count(&self) -> Option<usize> {
        Some(self.notes.threads.len() + usize::from(self.ended_leader().is_some()))
    }

    fn has_thread(&self, lwp: Lwp) -> bool {
        self.thread(lwp).is_some() || self.ended_leader().is_some_and(|facts| facts.lwp == lwp)
    }

    fn sched_counters(&self, _lwp: Lwp) -> Option<SchedCounters> {
        None
    }

    fn tracer_name(&self, _tracer: i32) -> Option<Vec<u8>> {
        None
    }
}
