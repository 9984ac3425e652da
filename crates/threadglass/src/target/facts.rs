//! What only the kernel knows about a thread.

use super::TargetError;
use crate::arch::syscall::{CODE_OF_CALL, RESTART_SYSCALL, number_in_code};
use crate::arch::{GeneralRegisters, Registers};
use crate::memory::Memory;
use crate::model::{Evidence, Policy, SignalSet, ThreadState};
use crate::proc::{Job, KernelState, SchedCounters, Stat, Status, SyscallFile};
use crate::{InnerTid, Lwp, Pid, RemoteAddr};

/// A place that leads to a thread's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The robust-list head that the thread registered with the kernel, which lies inside its descriptor.
    RobustHead(RemoteAddr),
    /// The descriptor itself: the thread pointer.
    Descriptor(RemoteAddr),
}

impl Anchor {
    /// Where the descriptor begins, if the robust-list head lies at `robust_head` in it.
    pub fn base(self, robust_head: Option<u64>) -> Option<RemoteAddr> {
        match self {
            Self::RobustHead(head) => head.checked_sub(robust_head?),
            Self::Descriptor(base) => Some(base),
        }
    }
}

/// A living thread and what leads to its descriptor without any list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Its id as the target sees it.
    pub inner: InnerTid,
    /// What leads to its descriptor.
    pub anchor: Anchor,
}

/// Facts about one LWP. Optional ones are those that a core, or a process of another user, lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LwpFacts {
    /// Which LWP.
    pub lwp: Lwp,
    /// Its id as the target sees it.
    pub inner: InnerTid,
    /// Its name, raw bytes.
    pub name: Option<Vec<u8>>,
    /// The kernel's state.
    pub state: KernelState,
    /// What it is blocked in; `None` when that may not be read.
    pub syscall: Option<SyscallFile>,
    /// Blocked signals; `None` in a core that a debugger wrote.
    pub blocked: Option<SignalSet>,
    /// Signals pending for this thread; likewise.
    pub pending: Option<SignalSet>,
    /// Scheduling policy.
    pub policy: Option<Policy>,
    /// Priority as `pthread_getschedparam` reports it.
    pub priority: Option<i32>,
    /// Nice value.
    pub nice: Option<i32>,
    /// Whether it runs at an inherited priority.
    pub boosted: Option<bool>,
    /// CPU time in clock ticks: user, system.
    pub cpu_ticks: Option<(u64, u64)>,
    /// Times it gave up the CPU, and times the CPU was taken from it.
    pub switches: Option<(u64, u64)>,
    /// Who traces it, 0 for nobody.
    pub tracer: i32,
    /// The robust-list head it registered, which lies inside its glibc descriptor. `None` for a thread
    /// that has none (starting, not a pthread) or may not be looked into.
    pub robust_head: Option<RemoteAddr>,
    /// Its thread pointer, which is the address of its glibc descriptor; a core has it.
    pub thread_pointer: Option<RemoteAddr>,
    /// The state, where it was found out by other means than the kernel's word (a running thread that
    /// was watched, the registers in a core), and how it is known.
    pub running: Option<(ThreadState, Evidence)>,
}

impl LwpFacts {
    /// An LWP of which nothing but its number and state is known.
    pub fn bare(lwp: Lwp, state: KernelState) -> Self {
        Self { lwp, inner: InnerTid(lwp.0), state, ..Self::default() }
    }

    /// From the three files of a live LWP.
    pub fn from_files(lwp: Lwp, stat: Stat, status: Status, syscall: Option<SyscallFile>) -> Self {
        Self {
            inner: status.inner_tid.unwrap_or(InnerTid(lwp.0)),
            syscall,
            blocked: Some(status.blocked),
            pending: Some(status.pending),
            policy: Some(stat.policy),
            priority: Some(stat.posix_priority()),
            nice: Some(stat.nice as i32),
            boosted: Some(stat.is_boosted()),
            cpu_ticks: Some((stat.utime, stat.stime)),
            switches: Some((status.voluntary_switches, status.involuntary_switches)),
            tracer: status.tracer,
            name: Some(stat.comm),
            ..Self::bare(lwp, stat.state)
        }
    }

    /// What the registers of a stopped thread tell: whether it was asleep in a system call or on its way.
    pub fn from_registers(lwp: Lwp, registers: &GeneralRegisters) -> Self {
        let (sp, pc) = (registers.sp(), registers.pc());
        let (state, judged, syscall) = match registers.asleep_in() {
            Some((number, args)) => {
                (KernelState::Sleeping, ThreadState::Sleep, SyscallFile::Inside { number, args, sp, pc })
            }
            None => (KernelState::Running, ThreadState::Active, SyscallFile::Outside { sp, pc }),
        };
        Self {
            syscall: Some(syscall),
            thread_pointer: Some(registers.thread_pointer()).filter(|pointer| !pointer.is_null()),
            running: Some((judged, Evidence::Derived)),
            ..Self::bare(lwp, state)
        }
    }

    /// The same with the call that the thread has made, as [`as_made`] finds that.
    pub(crate) fn with_call_as_made(self, memory: &dyn Memory) -> Self {
        Self { syscall: self.syscall.map(|call| as_made(memory, call)), ..self }
    }

    /// What leads to its glibc descriptor.
    pub fn hint(&self) -> Option<Hint> {
        let head = self.robust_head.map(Anchor::RobustHead);
        Some(Hint { inner: self.inner, anchor: self.thread_pointer.map(Anchor::Descriptor).or(head)? })
    }

    /// Whether `stat` and `syscall` tell of the same moment: they are two files, and the thread may
    /// have moved between the two reads.
    pub fn agree(&self) -> bool {
        let is_running = self.state == KernelState::Running;
        self.state.has_ended() || self.syscall.is_none_or(|call| (call == SyscallFile::Running) == is_running)
    }
}

/// The call that a thread has made. One that was interrupted, by a debugger or a stop, goes on as another one that has only
/// the registers of the first: then the code tells which that was.
pub(crate) fn as_made(memory: &dyn Memory, call: SyscallFile) -> SyscallFile {
    let SyscallFile::Inside { number: RESTART_SYSCALL, args, sp, pc } = call else { return call };
    let mut code = [0; CODE_OF_CALL];
    let place = pc.checked_sub(CODE_OF_CALL as u64);
    let is_read = place.is_some_and(|place| memory.read_exact(place, &mut code).is_ok());
    match number_in_code(code).filter(|_| is_read) {
        Some(number) => SyscallFile::Inside { number, args, sp, pc },
        None => call,
    }
}

/// A thread that is none of the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// There is none.
    Nowhere,
    /// In the process that made the target.
    Parent(Pid, Lwp),
    /// In another one.
    Process(Pid, Lwp),
    /// It cannot be found out.
    Unknown,
}

/// Somebody outside of the target's threads who could wake them by the memory that they wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideWaker {
    /// A process that works in the same memory.
    Process(Pid),
    /// The kernel, by a request in a ring that the target has made.
    Ring,
}

/// What the kernel (or a core's notes) knows about the target's LWPs.
pub trait KernelFacts {
    /// The LWPs that exist now, in the kernel's order.
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError>;

    /// Facts of each of `lwps`; `None` for one that has gone.
    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>>;

    /// The least of what tells whether threads move: of each its name, state and call, and how often it has been on a CPU, which
    /// stands for its switches. To be compared with what this gives later, and with nothing else.
    fn brief_facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        self.facts(lwps)
    }

    /// Number of threads now, where that can be had without listing them.
    fn thread_count(&self) -> Option<usize> {
        None
    }

    /// Whether thread `lwp` exists now.
    fn has_thread(&self, lwp: Lwp) -> bool;

    /// What thread `lwp` is blocked in now; `None` when it has gone or that may not be read.
    fn wait_call(&self, lwp: Lwp) -> Option<SyscallFile> {
        self.facts(&[lwp]).pop().flatten()?.syscall
    }

    /// All registers of a thread that cannot move any more (a core's); `None` where it may.
    fn registers_at_rest(&self, _lwp: Lwp) -> Option<Registers> {
        None
    }

    /// Scheduler counters; `None` where they cannot be had.
    fn sched_counters(&self, _lwp: Lwp) -> Option<SchedCounters> {
        None
    }

    /// Where a thread lives that has the id `inner` (as the target counts) and is none of the target's.
    fn elsewhere(&self, _inner: InnerTid) -> Elsewhere {
        Elsewhere::Unknown
    }

    /// For how long each of `lwps` has not been on a CPU, in milliseconds, where that can be told.
    fn idle_ms(&self, lwps: &[Lwp]) -> Vec<Option<u64>> {
        vec![None; lwps.len()]
    }

    /// What descriptor `number` leads to, as the kernel names it; `None` where that cannot be seen.
    fn descriptor_file(&self, _number: i32) -> Option<String> {
        None
    }

    /// What the kernel tells of descriptor `number`, as its `fdinfo`.
    fn descriptor_info(&self, _number: i32) -> Option<String> {
        None
    }

    /// Whether descriptor `number` leads to a FIFO, with a name or without.
    fn is_fifo(&self, _number: i32) -> bool {
        false
    }

    /// The function of the kernel that thread `lwp` sleeps in, where the kernel tells.
    fn wait_channel(&self, _lwp: Lwp) -> Option<String> {
        None
    }

    /// Signals from others for which the process has a handler, which could wake a thread although no thread of the process
    /// runs; a timer can do it no other way. `None` where that cannot be told.
    fn handled_signals(&self) -> Option<SignalSet> {
        None
    }

    /// Who else could wake threads of the process by its memory, beside those who share a part of it; `None` where that
    /// cannot be told.
    fn outside_wakers(&self) -> Option<Vec<OutsideWaker>> {
        None
    }

    /// What job control knows of the process.
    fn job(&self) -> Option<Job> {
        None
    }

    /// What thaws the control group of the process, if that is frozen.
    fn frozen(&self) -> Option<String> {
        None
    }

    /// For how long CPU quotas have kept the process from running so far, in microseconds.
    fn throttled_us(&self) -> Option<u64> {
        None
    }

    /// Name of a tracing thread, to tell a debugger from our own `suspend`.
    fn tracer_name(&self, _tracer: i32) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const CODE: RemoteAddr = RemoteAddr(0x1000);

    /// The number of the call that a thread has made whose code ends with `code`.
    fn made(number: i64, code: &[u8]) -> i64 {
        let mut memory = Bytes::default();
        memory.map(CODE, code.to_vec());
        let call = SyscallFile::Inside { number, args: [1; 6], sp: RemoteAddr(8), pc: CODE.offset(code.len() as u64) };
        let SyscallFile::Inside { number: made, args, .. } = as_made(&memory, call) else { panic!("it is in a call") };
        assert_eq!(args, [1; 6]);
        made
    }

    #[test]
    fn a_call_that_goes_on_is_the_one_that_was_made() {
        let poll = [0x90, 0xb8, 7, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(made(RESTART_SYSCALL, &poll), 7);
        assert_eq!(made(3, &poll), 3, "it was not interrupted");
        // mov rax, rdi: the number came from elsewhere.
        assert_eq!(made(RESTART_SYSCALL, &[0x90, 0x90, 0x48, 0x89, 0xf8, 0x0f, 0x05]), RESTART_SYSCALL);
        assert_eq!(
            made(RESTART_SYSCALL, &[0xb8, 0xff, 0xff, 0xff, 0x7f, 0x0f, 0x05]),
            RESTART_SYSCALL,
            "there is none"
        );
        assert_eq!(made(RESTART_SYSCALL, &[0x0f, 0x05]), RESTART_SYSCALL, "the code cannot be read");
    }
}
