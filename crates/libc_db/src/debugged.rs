//! A client's process as a target for the whole library: memory and registers through its `ps_*`
//! routines, on the calling thread; what only the kernel knows from the live process, where that was
//! shown to be the same, and else from the registers.

use crate::agent::Agent;
use crate::service::Service;
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use threadglass::access::Denial;
use threadglass::glibc::Layout;
use threadglass::proc::{KernelState, MapEntry, StackLimit, SyscallFile};
use threadglass::target::{
    Elsewhere, GeneralRegisters, Identity, KernelFacts, Limits, Live, LwpFacts, Memory, Module, ReadError,
    ReadErrorKind, SchedCounters, Symbols, Target, TargetError,
};
use threadglass::threads::Inspector;
use threadglass::{InnerTid, Lwp, Pid, RemoteAddr};

/// Pages are never smaller.
const PAGE: u64 = 4096;

/// A client's process, for the time of one call.
pub(crate) struct Debugged<'a> {
    service: Service,
    /// The only thread that may call the client's routines.
    thread: ThreadId,
    layout: &'a Layout,
    live: Option<&'a Live>,
    lwps: OnceLock<Vec<Lwp>>,
    /// Whether one of the client's routines failed where it should not have.
    failed: AtomicBool,
    limits: Limits,
}

// SAFETY: the pointer inside `service` is what keeps this from being so by itself. It is used on `thread`
// only, which `service()` checks each time; everything else may be shared.
unsafe impl Sync for Debugged<'_> {}

impl<'a> Debugged<'a> {
    pub(crate) fn new(agent: &'a Agent, service: Service, live: Option<&'a Live>) -> Self {
        Self {
            service,
            thread: thread::current().id(),
            layout: agent.layout(),
            live,
            lwps: OnceLock::new(),
            failed: AtomicBool::new(false),
            limits: Limits::default(),
        }
    }

    /// Whether what was learned from it is all there was: no routine of the client's has failed, nor
    /// does it fail now.
    pub(crate) fn is_whole(&self) -> bool {
        !self.failed.load(Ordering::Relaxed) && self.inspector().is_initialised().is_ok()
    }

    fn inspector(&self) -> Inspector<'_> {
        Inspector { memory: self, layout: self.layout, target: None }
    }

    fn service(&self) -> Option<Service> {
        let here = thread::current().id() == self.thread;
        if !here {
            self.fail();
        }
        here.then_some(self.service)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn registers(&self, lwp: Lwp) -> Option<GeneralRegisters> {
        self.service()?.general_registers(lwp)
    }

    fn listed(&self) -> &[Lwp] {
        self.lwps.get_or_init(|| match self.inspector().list() {
            Ok(threads) => threads.iter().filter(|thread| thread.tid > 0).map(|thread| Lwp(thread.tid)).collect(),
            Err(_) => {
                self.fail();
                Vec::new()
            }
        })
    }

    /// The facts that registers tell.
    fn by_registers(&self, lwp: Lwp) -> Option<LwpFacts> {
        let registers = self.registers(lwp);
        if registers.is_none() {
            self.fail();
        }
        registers.map(|registers| LwpFacts::from_registers(lwp, &registers))
    }

    /// A thread that its tracer stopped may have been stopped at the end of its call as well as in it.
    fn look_through_stop(&self, facts: &mut LwpFacts) {
        let (KernelState::Traced, Some(SyscallFile::Inside { sp, pc, .. })) = (facts.state, facts.syscall) else {
            return;
        };
        // A client that is not its tracer cannot tell.
        if self.registers(facts.lwp).is_some_and(|registers| registers.asleep_in().is_none()) {
            facts.syscall = Some(SyscallFile::Outside { sp, pc });
        }
    }
}

impl Memory for Debugged<'_> {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let len = buf.len();
        let nothing = |kind| Err(ReadError { addr, len, kind });
        let Some(service) = self.service() else { return nothing(ReadErrorKind::Denied) };
        if service.read_at(addr, buf).is_ok() {
            return Ok(len);
        }
        // The client gives all or nothing. What it has up to the end of the mapping is wanted; and where
        // every part can be had, it was the client that failed.
        let mut done = 0;
        while done < len {
            let Some(at) = addr.0.checked_add(done as u64).map(RemoteAddr) else { break };
            let part = ((PAGE - at.0 % PAGE) as usize).min(len - done);
            if service.read_at(at, &mut buf[done..done + part]).is_err() {
                break;
            }
            done += part;
        }
        if done == len {
            self.fail();
        }
        if done == 0 { nothing(ReadErrorKind::Unmapped) } else { Ok(done) }
    }
}

impl Symbols for Debugged<'_> {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.service()?.address_of(name)
    }
}

impl KernelFacts for Debugged<'_> {
    fn lwps(&self) -> Result<Vec<Lwp>, TargetError> {
        self.live.map_or_else(|| Ok(self.listed().to_vec()), KernelFacts::lwps)
    }

    fn facts(&self, lwps: &[Lwp]) -> Vec<Option<LwpFacts>> {
        match self.live {
            Some(live) => {
                let mut facts = live.facts(lwps);
                facts.iter_mut().flatten().for_each(|facts| self.look_through_stop(facts));
                facts
            }
            None => lwps.iter().map(|lwp| self.by_registers(*lwp)).collect(),
        }
    }

    fn thread_count(&self) -> Option<usize> {
        self.live.map_or_else(|| Some(self.listed().len()), KernelFacts::thread_count)
    }

    fn has_thread(&self, lwp: Lwp) -> bool {
        self.live.map_or_else(|| self.listed().contains(&lwp), |live| live.has_thread(lwp))
    }

    /// Only told for threads that run, and those wait for nothing.
    fn sched_counters(&self, _lwp: Lwp) -> Option<SchedCounters> {
        None
    }

    fn elsewhere(&self, inner: InnerTid) -> Elsewhere {
        self.live.map_or(Elsewhere::Unknown, |live| live.elsewhere(inner))
    }

    fn tracer_name(&self, tracer: i32) -> Option<Vec<u8>> {
        self.live?.tracer_name(tracer)
    }
}

impl Target for Debugged<'_> {
    fn pid(&self) -> Pid {
        match self.live {
            Some(live) => live.pid(),
            None => Pid(self.service().and_then(Service::pid).unwrap_or(0)),
        }
    }

    fn identity(&self) -> Identity {
        self.live.map_or_else(Identity::default, Target::identity)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn denial(&self) -> Option<Denial> {
        None
    }

    fn check_identity(&self) -> Result<(), TargetError> {
        self.live.map_or(Ok(()), |live| live.check_identity())
    }

    fn maps(&self) -> &[MapEntry] {
        self.live.map_or(&[], |live| live.maps())
    }

    fn modules(&self) -> &[Module] {
        self.live.map_or(&[], Target::modules)
    }

    fn is_program(&self, module: &Module) -> bool {
        self.live.is_some_and(|live| live.is_program(module))
    }

    fn open_module(&self, module: &Module) -> Option<File> {
        self.live?.open_module(module)
    }

    fn stack_limit(&self) -> Option<StackLimit> {
        self.live?.stack_limit()
    }

    fn initial_stack(&self) -> Option<RemoteAddr> {
        self.live?.initial_stack()
    }

    fn is_namespaced(&self) -> bool {
        self.live.is_some_and(Target::is_namespaced)
    }

    fn lwp_of_inner(&self, inner: InnerTid) -> Option<Lwp> {
        self.live.map_or(Some(Lwp(inner.0)), |live| live.lwp_of_inner(inner))
    }

    fn gives_facts_in_bulk(&self) -> bool {
        self.live.is_some_and(Target::gives_facts_in_bulk)
    }

    fn other(&self, pid: Pid) -> Option<Box<dyn Target>> {
        self.live?.other(pid)
    }

    fn known_layout(&self) -> Option<&Layout> {
        Some(self.layout)
    }
}
