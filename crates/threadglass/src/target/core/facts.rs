//! What a core's notes tell of its threads.

use super::Core;
use super::notes::ThreadNotes;
use crate::Lwp;
use crate::model::{CoreWriter, Evidence, ThreadState};
use crate::proc::{KernelState, SyscallFile};
use crate::signals::SignalSet;
use crate::target::{KernelFacts, LwpFacts, SchedCounters, TargetError};
use crate::unwind::Registers;

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
            // The process's name is that of its main thread.
            name: self.notes.process.as_ref().filter(|_| by_kernel && is_leader).map(|process| process.name.clone()),
            syscall: Some(syscall),
            blocked: by_kernel.then_some(status.blocked),
            pending: by_kernel.then_some(SignalSet(status.pending.0 & !SIGKILL)),
            // The leader's record has the time of the whole process.
            cpu_ticks: (by_kernel && !is_leader).then_some(status.cpu_ticks),
            thread_pointer: Some(registers.thread_pointer()).filter(|pointer| !pointer.is_null()),
            running: Some((judged, Evidence::Derived)),
            ..LwpFacts::bare(status.lwp, state)
        }
    }

    /// A leader that is not among the threads had ended before the others: main called `pthread_exit`.
    fn ended_leader(&self) -> Option<Lwp> {
        let leader = self.pid.leader();
        let ended = self.notes.are_whole() && self.notes.process.is_some() && !self.by_lwp.contains_key(&leader);
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
        let of = |lwp: &Lwp| match self.thread(*lwp) {
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
        self.thread(lwp).is_some() || self.ended_leader() == Some(lwp)
    }

    fn sched_counters(&self, _lwp: Lwp) -> Option<SchedCounters> {
        None
    }

    fn registers_at_rest(&self, lwp: Lwp) -> Option<Registers> {
        let bytes: Vec<u8> = self.registers(lwp)?.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        Registers::from_user_regs(&bytes)
    }

    fn tracer_name(&self, _tracer: i32) -> Option<Vec<u8>> {
        None
    }
}
