//! From facts and descriptor to the model's thread.

use super::collect::SUSPENDER;
use super::main_stack::main_stack;
use super::state::{state_of, stop_of};
use crate::model::{Cpu, Evidence, Gap, Stack, Thread, ThreadState, ThreadType};
use crate::runtimes::ThreadRecord;
use crate::symbols::Symbolizer;
use crate::table::{agent_thread, is_in_agent};
use crate::target::{LwpFacts, Target};
use crate::{InnerTid, RemoteAddr};
use std::collections::HashMap;

/// THR_DETACHED of the creation flags.
const THR_DETACHED: u32 = 0x40;

/// Milliseconds of one unit of CPU time in `/proc` (USER_HZ is 100 on every Linux).
const MS_PER_TICK: u64 = 10;

/// What is the same for all threads of a look.
pub(super) struct Describer<'a> {
    target: Option<&'a dyn Target>,
    symbolizer: Option<&'a Symbolizer<'a>>,
    /// Names of start functions and of tracers, each looked up once.
    functions: HashMap<RemoteAddr, Option<String>>,
    tracers: HashMap<i32, Option<Vec<u8>>>,
    /// The thread of an injected agent, looked for once.
    agent_thread: Option<Option<InnerTid>>,
}

impl<'a> Describer<'a> {
    pub(super) fn new(target: Option<&'a dyn Target>, symbolizer: Option<&'a Symbolizer<'a>>) -> Self {
        Self { target, symbolizer, functions: HashMap::new(), tracers: HashMap::new(), agent_thread: None }
    }

    /// A thread with an LWP.
    pub(super) fn living(&mut self, facts: &LwpFacts, record: Option<&ThreadRecord>, gaps: &mut Vec<Gap>) -> Thread {
        let target = self.target;
        let name_of = |tracer| target.filter(|_| tracer != 0).and_then(|target| target.tracer_name(tracer));
        let tracer = self.tracers.entry(facts.tracer).or_insert_with(|| name_of(facts.tracer)).clone();
        let suspended = tracer.as_deref() == Some(SUSPENDER.to_bytes());
        let (state, state_evidence) = state_of(facts, suspended).unwrap_or_else(|reason| {
            Gap::of_thread(gaps, "state", reason, facts.lwp);
            (ThreadState::Unknown, Evidence::Unknown)
        });
        let mut thread = self.by_record(record);
        let (sp, pc) = facts.syscall.and_then(|call| call.registers()).unzip();
        thread.lwp = Some(facts.lwp);
        thread.inner_lwp = Some(facts.inner);
        thread.name = facts.name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned());
        thread.state = state;
        thread.state_evidence = state_evidence;
        thread.stop = stop_of(facts, suspended, tracer.as_deref());
        thread.db_suspended = suspended;
        // What libc recorded has to do where the kernel is not there to be asked.
        thread.priority = facts.priority.or(record.and_then(ThreadRecord::priority));
        thread.policy = facts.policy.or(record.and_then(|thread| thread.scheduling).map(|(policy, _)| policy));
        thread.nice = facts.nice;
        thread.inherited_priority = facts.boosted;
        // A thread that sleeps gave the CPU up by itself, one that runs has it. Of a queued one that is not recorded.
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
        let led = target.filter(|target| facts.lwp == target.pid().leader() && target.denial().is_none());
        if let Some(target) = led {
            // A process forked by another thread than main is led by that one, on its own stack.
            let end = record.and_then(|thread| thread.stack_end);
            thread.stack = thread.stack.or_else(|| main_stack(target, end));
        }
        thread
    }

    /// A thread that has exited and was not joined: libc alone knows of it.
    pub(super) fn zombie(&mut self, record: &ThreadRecord) -> Thread {
        Thread { exiting: false, preempted: Some(false), ..self.by_record(Some(record)) }
    }

    /// Whether a thread that began at `start` is libc's own or the agent's.
    fn is_system(&mut self, start: RemoteAddr, tid: i32) -> bool {
        let Some(target) = self.target else { return false };
        if target.module_at(start).is_some() {
            return target.is_in_libc(start) || is_in_agent(target, start);
        }
        // Few threads begin outside all modules, so the agent is asked only if there is one.
        let agent = *self.agent_thread.get_or_insert_with(|| agent_thread(target));
        agent == Some(InnerTid(tid))
    }

    pub(super) fn by_record(&mut self, record: Option<&ThreadRecord>) -> Thread {
        let start = record.and_then(|thread| thread.start);
        let detached = record.and_then(|thread| thread.detached);
        let kind = record.map(|thread| match start.is_some_and(|start| self.is_system(start, thread.tid)) {
            true => ThreadType::System,
            false => ThreadType::User,
        });
        let start_function = start.zip(self.symbolizer).and_then(|(start, symbolizer)| {
            self.functions.entry(start).or_insert_with(|| symbolizer.function_at(start)).clone()
        });
        Thread {
            id: record.map(|thread| thread.id),
            state: ThreadState::Zombie,
            state_evidence: Evidence::Recorded,
            kind,
            detached,
            user_flags: detached.map(|detached| if detached { THR_DETACHED } else { 0 }),
            exiting: record.is_some_and(|thread| thread.is_exiting),
            start,
            start_function,
            stack: record.and_then(|thread| thread.stack).map(|(base, size, guard)| Stack { base, size, guard }),
            descriptor_size: record.and_then(|thread| thread.size),
            flags: record.and_then(|thread| thread.flags),
            specific: record.and_then(|thread| thread.specific),
            traced_events: record.and_then(|thread| thread.report_events),
            events: record.and_then(|thread| thread.events),
            ..Thread::default()
        }
    }
}
