//! From facts and descriptor to the model's thread.

use super::collect::SUSPENDER;
use super::state::{state_of, stop_of};
use crate::model::{Cpu, Evidence, Gap, Stack, Thread, ThreadState, ThreadType};
use crate::runtimes::glibc::{Descriptor, Layout};
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr};

/// THR_DETACHED of the creation flags.
const THR_DETACHED: u32 = 0x40;

/// Milliseconds of one unit of CPU time in `/proc` (USER_HZ is 100 on every Linux).
const MS_PER_TICK: u64 = 10;

/// What is the same for all threads of a look.
pub(super) struct Context<'a> {
    pub(super) layout: Option<&'a Layout>,
    /// Whether an address lies in libc, which makes a thread that starts there libc's own.
    pub(super) in_libc: &'a dyn Fn(RemoteAddr) -> bool,
    pub(super) function_at: &'a mut dyn FnMut(RemoteAddr) -> Option<String>,
    /// Name of a tracer.
    pub(super) tracer_name: &'a mut dyn FnMut(i32) -> Option<Vec<u8>>,
    /// The main stack, from where libc recorded that it ends.
    pub(super) main_stack: &'a dyn Fn(Option<RemoteAddr>) -> Option<Stack>,
    pub(super) leader: Lwp,
}

impl Context<'_> {
    /// A thread with an LWP.
    pub(super) fn living(&mut self, facts: &LwpFacts, descriptor: Option<&Descriptor>, gaps: &mut Vec<Gap>) -> Thread {
        let tracer = if facts.tracer != 0 { (self.tracer_name)(facts.tracer) } else { None };
        let suspended = tracer.as_deref() == Some(SUSPENDER.as_bytes());
        let (state, state_evidence, reason) = state_of(facts, suspended);
        if let Some(reason) = reason {
            Gap::of_thread(gaps, "state", reason, facts.lwp);
        }
        let mut thread = self.by_descriptor(descriptor);
        let (sp, pc) = facts.syscall.and_then(|call| call.registers()).unzip();
        thread.lwp = Some(facts.lwp);
        thread.inner_lwp = Some(facts.inner);
        thread.name = facts.name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned());
        thread.state = state;
        thread.state_evidence = state_evidence;
        thread.stop = stop_of(facts, suspended, tracer.as_deref());
        thread.db_suspended = suspended;
        // What libc recorded has to do where the kernel is not there to be asked.
        let recorded = descriptor.and_then(|thread| thread.scheduling);
        thread.priority = facts.priority.or(recorded.map(|(policy, priority)| match policy.is_realtime() {
            true => priority,
            false => 0,
        }));
        thread.policy = facts.policy.or(recorded.map(|(policy, _)| policy));
        thread.nice = facts.nice;
        thread.inherited_priority = facts.boosted;
        // Who sleeps gave the CPU up by itself; who runs has it. Of a queued one it is not recorded.
        thread.preempted = match state {
            ThreadState::Sleep | ThreadState::Active | ThreadState::Zombie | ThreadState::StoppedAsleep => Some(false),
            _ => None,
        };
        (thread.sp, thread.pc) = (sp, pc);
        thread.signal_mask = facts.blocked;
        thread.pending = facts.pending;
        thread.syscall = facts.syscall.and_then(|file| file.call());
        thread.cpu = facts.cpu_ticks.map(|(user, system)| Cpu {
            user_ms: user.saturating_mul(MS_PER_TICK),
            system_ms: system.saturating_mul(MS_PER_TICK),
        });
        if state == ThreadState::Zombie {
            // The kernel answers with zeros for what an ended thread has no more.
            (thread.sp, thread.pc) = (None, None);
            thread.exiting = false;
        }
        if facts.lwp == self.leader {
            // A process forked by another thread than main is led by that one, on its own stack.
            let end = descriptor.and_then(|thread| thread.stack_end);
            thread.stack = thread.stack.or_else(|| (self.main_stack)(end));
        }
        thread
    }

    /// A thread that has exited and was not joined: libc alone knows of it.
    pub(super) fn zombie(&mut self, descriptor: &Descriptor) -> Thread {
        let mut thread = self.by_descriptor(Some(descriptor));
        thread.exiting = false;
        thread.preempted = Some(false);
        thread
    }

    fn by_descriptor(&mut self, descriptor: Option<&Descriptor>) -> Thread {
        let start = descriptor.and_then(|thread| thread.start_routine).filter(|start| !start.is_null());
        let detached = descriptor.and_then(Descriptor::is_detached);
        let kind = match (descriptor, start) {
            (Some(_), Some(start)) if (self.in_libc)(start) => Some(ThreadType::System),
            (Some(_), _) => Some(ThreadType::User),
            (None, _) => None,
        };
        let layout = descriptor.and(self.layout);
        Thread {
            id: descriptor.map(|thread| thread.id),
            lwp: None,
            inner_lwp: None,
            name: None,
            state: ThreadState::Zombie,
            state_evidence: Evidence::Recorded,
            stop: None,
            kind,
            detached,
            user_flags: detached.map(|detached| if detached { THR_DETACHED } else { 0 }),
            exiting: descriptor.is_some_and(|thread| thread.cancel.exiting()),
            db_suspended: false,
            priority: None,
            policy: None,
            nice: None,
            inherited_priority: None,
            preempted: None,
            pc: None,
            sp: None,
            start,
            start_function: start.and_then(|start| (self.function_at)(start)),
            stack: descriptor.and_then(Descriptor::stack).map(|(base, size, guard)| Stack { base, size, guard }),
            descriptor_size: layout.and_then(|layout| layout.size),
            flags: descriptor.map(|thread| thread.cancel.0),
            specific: layout.zip(descriptor).map(|(layout, thread)| thread.id.0.offset(layout.specific)),
            signal_mask: None,
            pending: None,
            syscall: None,
            waits_for: None,
            holds: Vec::new(),
            cpu: None,
            traced_events: descriptor.and_then(|thread| thread.report_events),
            events: descriptor.and_then(|thread| thread.events),
            frames: Vec::new(),
            frames_end: None,
            call_site: None,
        }
    }
}
