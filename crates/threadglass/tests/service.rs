//! A debugger's routines as a target: the same threads and locks as by looking at the process itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Build, Fixture};
use threadglass::act::{LiveWriter, RegisterSet, Tracer};
use threadglass::internals::glibc::Layout;
use threadglass::internals::{Inspector, SyscallFile};
use threadglass::look::{Look, Names, Scope, look};
use threadglass::memory::{Memory, MemoryWrite, ReadErrorKind};
use threadglass::model::{Snapshot, SyncObject, Thread, ThreadState};
use threadglass::target::{
    GeneralRegisters, KernelFacts, KnownProcess, Live, ProcService, RoutineFailed, Service, Symbols, Target,
};
use threadglass::{Lwp, Pid, RemoteAddr};

/// The routines of a debugger that traces a process.
struct Debugger<'a> {
    live: &'a Live,
    tracer: Tracer,
    reads: AtomicUsize,
    /// This read fails.
    fails_at: usize,
    /// What the system call of every thread has answered, whatever their registers say.
    result: Option<u64>,
}

impl<'a> Debugger<'a> {
    fn of(live: &'a Live) -> Self {
        Self { live, tracer: Tracer::new(live.pid()), reads: AtomicUsize::new(0), fails_at: usize::MAX, result: None }
    }
}

impl ProcService for &Debugger<'_> {
    fn pid(&self) -> Option<Pid> {
        Some(self.live.pid())
    }

    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), RoutineFailed> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.fails_at {
            return Err(RoutineFailed);
        }
        self.live.read_exact(addr, buf).map_err(|_| RoutineFailed)
    }

    fn write(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), RoutineFailed> {
        LiveWriter(self.live).write_at(addr, bytes).map_err(|_| RoutineFailed)
    }

    fn look_up(&self, name: &str) -> Result<Option<RemoteAddr>, RoutineFailed> {
        Ok(self.live.address_of(name))
    }

    fn registers(&self, lwp: Lwp) -> Result<GeneralRegisters, RoutineFailed> {
        let bytes = self.tracer.registers(lwp, RegisterSet::General).map_err(|_| RoutineFailed)?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut registers: [u64; 27] = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        registers[10] = self.result.unwrap_or(registers[10]);
        Ok(GeneralRegisters(registers))
    }
}

fn start(scenario: &str) -> (Fixture, Live) {
    let fixture = Fixture::start(&Build::new("deadlocks.c").path(), &[scenario]).settled();
    let live = Live::open(Pid(fixture.pid())).unwrap();
    (fixture, live)
}

fn layout_of(target: &(impl Memory + Symbols)) -> Layout {
    Layout::discover(target, target, &[]).unwrap()
}

fn known<'a>(layout: &'a Layout, live: Option<&'a Live>) -> KnownProcess<'a> {
    KnownProcess { live, list: layout }
}

/// What does not depend on the moment.
fn steady(mut snapshot: Snapshot) -> (Vec<Thread>, Vec<SyncObject>) {
    snapshot.threads.iter_mut().for_each(|thread| thread.cpu = None);
    (snapshot.threads, snapshot.objects)
}

#[test]
fn everything_that_the_live_process_tells() {
    for scenario in ["abba", "writers", "two_cycles"] {
        let (_fixture, live) = start(scenario);
        let debugger = Debugger::of(&live);
        let service = Service::new(&debugger);
        let layout = layout_of(&service);
        assert!(!service.has_failed_to_read() && !service.has_failed_to_look_up(), "{scenario}");
        let service = Service::knowing(&debugger, known(&layout, Some(&live)));
        let seen = steady(Look::new(&service).with_layout(&layout).take(Scope::All, Names::Findings).unwrap());
        let truth = steady(look(&live, Scope::All, Names::Findings).unwrap());
        assert!(truth.1.iter().any(|object| !object.waiters.is_empty()), "{scenario}: nobody waits");
        assert_eq!(seen, truth, "{scenario}");
        assert!(!service.has_failed(), "{scenario}");
    }
}

/// Who waits for what, and who holds it.
fn locks(objects: &[SyncObject]) -> Vec<impl PartialEq + std::fmt::Debug> {
    let lock = |object: &SyncObject| {
        let waiters: Vec<_> = object.waiters.iter().map(|waiter| (waiter.lwp, waiter.thread)).collect();
        let holders: Vec<_> = object.holders.iter().map(|holder| (holder.lwp, holder.thread)).collect();
        (object.address, object.kind, object.state, waiters, holders)
    };
    objects.iter().map(lock).collect()
}

/// As of a core that a debugger has open: its memory and registers are all there is.
#[test]
fn threads_and_locks_by_memory_and_registers_alone() {
    let (_fixture, live) = start("abba");
    let layout = layout_of(&live);
    let debugger = Debugger::of(&live);
    let service = Service::knowing(&debugger, known(&layout, None));
    let truth = look(&live, Scope::Waited, Names::Findings).unwrap();
    let seen = Look::new(&service).with_layout(&layout).take(Scope::Waited, Names::Findings).unwrap();
    let told = |thread: &Thread| {
        (thread.id, thread.lwp, thread.state, thread.start, thread.sp, thread.pc, thread.syscall.clone())
    };
    let mut expected: Vec<_> = truth.threads.iter().map(told).collect();
    let mut threads: Vec<_> = seen.threads.iter().map(told).collect();
    expected.sort_by_key(|thread| thread.1);
    threads.sort_by_key(|thread| thread.1);
    assert_eq!(threads, expected);
    assert!(threads.iter().all(|thread| thread.2 == ThreadState::Sleep));
    assert_eq!(locks(&seen.objects), locks(&truth.objects));
    assert!(!truth.objects.is_empty() && !service.has_failed());
}

/// One thread at a time, with memory from the debugger and facts from the kernel.
#[test]
fn single_threads() {
    let (_fixture, live) = start("abba");
    let layout = layout_of(&live);
    let debugger = Debugger::of(&live);
    let service = Service::knowing(&debugger, known(&layout, Some(&live)));
    let ours = Inspector { memory: &service, layout: &layout, target: Some(&service) };
    let theirs = Inspector { memory: &live, layout: &layout, target: Some(&live) };
    let listed = ours.list().unwrap();
    assert!(listed.len() >= 3 && listed == theirs.list().unwrap());
    for descriptor in &listed {
        let describe = |inspector: &Inspector<'_>, target: &dyn Target| {
            let facts = Inspector::facts(target, &[inspector.lwp_of(descriptor).unwrap()]).pop().unwrap();
            Thread { cpu: None, ..inspector.describe(descriptor, facts.as_ref()) }
        };
        assert_eq!(describe(&ours, &service), describe(&theirs, &live));
    }
}

/// A thread that was stopped at the end of its call does not sleep in it, although the kernel names the call.
#[test]
fn a_stop_at_the_end_of_a_call() {
    let (fixture, live) = start("abba");
    let layout = layout_of(&live);
    let lwp = *live.lwps().unwrap().iter().find(|lwp| lwp.0 != fixture.pid()).unwrap();
    for (result, is_done) in [(None, false), (Some(0), true)] {
        let debugger = Debugger { result, ..Debugger::of(&live) };
        debugger.tracer.suspend(lwp).unwrap();
        let service = Service::knowing(&debugger, known(&layout, Some(&live)));
        let call_of = |target: &dyn Target| target.wait_call(lwp).unwrap();
        assert!(matches!(call_of(&live), SyscallFile::Inside { .. }));
        assert_eq!(matches!(call_of(&service), SyscallFile::Outside { .. }), is_done);
    }
}

/// Memory up to the end of a mapping, and no guess beyond it.
#[test]
fn a_read_over_the_end_of_a_mapping_is_short() {
    let (_fixture, live) = start("abba");
    let debugger = Debugger::of(&live);
    let service = Service::new(&debugger);
    let maps = live.maps();
    let is_end = |index: usize| maps.get(index + 1).is_none_or(|next| next.start != maps[index].end);
    let end = (0..maps.len()).find(|index| maps[*index].read && maps[*index].write && is_end(*index)).unwrap();
    let from = RemoteAddr(maps[end].end.0 - 5000);
    assert_eq!(service.read_at(from, &mut [0; 9000]), Ok(5000));
    assert_eq!(service.read_at(maps[end].end, &mut [0; 8]).unwrap_err().kind, ReadErrorKind::Unmapped);
    assert!(service.has_failed_to_read() && !service.has_failed(), "nothing is there: that is no failure");
}

/// Half an answer is known to be one, whichever read fails.
#[test]
fn a_read_that_fails_once_is_noticed() {
    let (_fixture, live) = start("abba");
    let layout = layout_of(&live);
    let whole = Debugger::of(&live);
    let truth = Service::knowing(&whole, known(&layout, None)).lwps().unwrap();
    assert!(truth.len() >= 3);
    for fails_at in 0..whole.reads.into_inner() {
        let debugger = Debugger { fails_at, ..Debugger::of(&live) };
        let service = Service::knowing(&debugger, known(&layout, None));
        let listed = service.lwps().unwrap();
        assert!(service.has_failed(), "read {fails_at}: {listed:?}");
    }
}

/// Only the thread that made the target may call the debugger.
#[test]
fn other_threads_do_not_call_the_debugger() {
    let (_fixture, live) = start("abba");
    let layout = layout_of(&live);
    let debugger = Debugger::of(&live);
    let service = Service::knowing(&debugger, known(&layout, None));
    let elsewhere = || {
        let read = service.read_u32(live.maps()[0].start);
        (read.map_err(|error| error.kind), service.address_of("malloc"), service.facts(&[live.pid().leader()]))
    };
    let answers = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
    assert_eq!(answers, (Err(ReadErrorKind::Denied), None, vec![None]));
    assert!(service.has_failed());
    assert_eq!(debugger.reads.load(Ordering::Relaxed), 0);
}
