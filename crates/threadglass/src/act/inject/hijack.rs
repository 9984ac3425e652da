//! The few microseconds in which a thread of the target works for us: it maps memory and makes a thread.
//!
//! It may hold any lock, so it runs nothing but two system calls. At every moment between them we may be killed:
//! see `arch::signal_frame`.

use super::alone::Alone;
use super::code::{self, LibcCode};
use super::places::{self, Leftover};
use super::room::{AgentRequest, Room, SharedWords, shared};
use super::victim::Victim;
use super::{InjectError, Options, calls};
use crate::act::{ControlError, StoppedThread, nap};
use crate::arch::signal_frame::{Frame, frame};
use crate::arch::{GeneralRegisters, syscall};
use crate::memory::Memory;
use crate::model::SignalSet;
use crate::runtimes::glibc::Layout;
use crate::sys::priority::Hurry;
use crate::sys::ptrace::{
    AT_SYSCALL, Change, RegisterSet, get_signal_mask, go_to_syscall, poll_change, rseq_area, seccomp_filter,
    tell_syscalls,
};
use crate::sys::task::status_of;
use crate::target::{CAP_SYS_ADMIN, Live, Target, has_capability};
use crate::{Lwp, RemoteAddr};
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::control::{Mail, go, step};

/// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, CHILD_CLEARTID: a thread like others.
const THREAD: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x80000 | 0x20_0000;
/// CLONE_VFORK: the thread that makes another is kept in the kernel until that has ended.
const AND_WAIT: u64 = 0x4000;

/// How often a call that was stopped in the middle is made again.
const TRIES: usize = 64;

/// How long a system call may take. It takes longer only if the kernel waits for something.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeThread {
    /// The memory.
    pub(super) start: RemoteAddr,
    /// For how long the thread was stopped.
    pub(super) pause: Duration,
    /// The system call that returned early because of it, if there was one.
    pub(super) interrupted: Option<i64>,
}

/// What is known before anybody is stopped.
pub(super) struct Prepared<'a> {
    pub(super) live: &'a Live,
    /// The memory of the target, for writing also where the target itself may only read.
    pub(super) mem: File,
    pub(super) room: Room,
    /// Whether the thread's filters are no matter.
    force: bool,
    /// What an earlier injection has left in it.
    leftover: Option<Leftover>,
    layout: Layout,
    code: LibcCode,
    request: AgentRequest,
}

impl<'a> Prepared<'a> {
    /// For a process whose agent has its function at `attach`, if one is loaded.
    pub(super) fn new(live: &'a Live, attach: Option<RemoteAddr>, options: &Options) -> Result<Self, InjectError> {
        // A program with a glibc that can be loaded into has the descriptions of it, too.
        let layout = Layout::discover(live, live, &[])?;
        let code = code::find(live, &layout)?;
        let mode = if options.exact { table::mode::EXACT } else { table::mode::SAMPLED };
        let request = AgentRequest { mode, objects: options.size.unwrap_or(0), attach };
        let room = Room::new(live, &layout, if attach.is_some() { 0 } else { agent::AGENT.len() });
        let path = format!("/proc/{}/task/{}/mem", live.pid(), live.witness());
        let mem = OpenOptions::new().read(true).write(true).open(path).map_err(InjectError::writing)?;
        let leftover = Leftover::find(live);
        Ok(Self { live, mem, room, force: options.force, leftover, layout, code, request })
    }
}

/// A stopped thread whose registers are ours; put back when this is dropped, in whatever way.
struct Hijacked<'a> {
    prepared: &'a Prepared<'a>,
    stopped: &'a StoppedThread,
    regs: GeneralRegisters,
    mask: SignalSet,
    is_masked: std::cell::Cell<bool>,
    frame: Frame,
}

impl Drop for Hijacked<'_> {
    fn drop(&mut self) {
        // The mask first: until the registers are the old ones, the frame brings back both.
        let _ = self.stopped.set_signal_mask(self.mask);
        let _ = self.stopped.set_registers(RegisterSet::General, &self.regs.resumed().bytes());
    }
}

impl<'a> Hijacked<'a> {
    fn new(prepared: &'a Prepared<'_>, victim: &Victim, stopped: &'a StoppedThread) -> Result<Self, InjectError> {
        let lwp = stopped.lwp();
        let regs = general_registers(stopped)?;
        if !victim.has_room(prepared.live, regs.sp()) || is_in_sequence(prepared.live, lwp) {
            return Err(InjectError::NoVictim);
        }
        let mask = get_signal_mask(lwp).map_err(|errno| ControlError::System(lwp, errno))?;
        let float = stopped.registers(RegisterSet::Extended)?;
        let frame = frame(&regs.resumed(), mask.0, &float, prepared.code.sigreturn.0).ok_or(InjectError::NoVictim)?;
        prepared.mem.write_all_at(&frame.bytes, frame.at).map_err(|_| InjectError::NoVictim)?;
        tell_syscalls(lwp).map_err(|errno| ControlError::System(lwp, errno))?;
        Ok(Self { prepared, stopped, regs, mask, is_masked: std::cell::Cell::new(false), frame })
    }

    /// One system call, in the C library, by the return behind which the thread finds back without us.
    fn call(&self, number: i64, args: [u64; 6], kept: u64) -> Result<u64, InjectError> {
        let regs = self.regs.calling(self.prepared.code.syscall_ret.0, self.frame.at, number, args, kept);
        self.stopped.set_registers(RegisterSet::General, &regs.bytes())?;
        if !self.is_masked.replace(true) {
            self.stopped.set_signal_mask(SignalSet(u64::MAX))?;
        }
        for _ in 0..TRIES {
            self.to_syscall()?;
            self.to_syscall()?;
            let after = general_registers(self.stopped)?;
            match after.result() {
                // Stopped in the middle (SIGSTOP cannot be blocked), and nothing was done: once more.
                _ if after.restart().is_some() => self.stopped.set_registers(RegisterSet::General, &regs.bytes())?,
                error @ -4095..=-1 => return Err(InjectError::Call(number, Errno::from_raw(-error as i32))),
                result => return Ok(result as u64),
            }
        }
        Err(InjectError::NoVictim)
    }

    /// Memory that can be executed, at a place that the next tool would find, and how much.
    fn map(&self) -> Result<(RemoteAddr, u64), InjectError> {
        const READ_EXECUTE: u64 = 1 | 4;
        const PRIVATE_ANONYMOUS: u64 = 2 | 0x20;
        const FIXED: u64 = 0x10;
        const FIXED_NOREPLACE: u64 = 0x10_0000;
        let Prepared { live, leftover, room, .. } = self.prepared;
        let map = |at: u64, size: u64, flags: u64| {
            let args = [at, size, READ_EXECUTE, PRIVATE_ANONYMOUS | flags, u64::MAX, 0];
            self.call(syscall::MMAP, args, 0).map(|start| (RemoteAddr(start), size))
        };
        if let Some(left) = leftover.filter(|left| left.is_still_there(live, self.stopped.lwp())) {
            return map(left.start.0, room.size.max(left.size), FIXED);
        }
        for start in places::free(live.maps()) {
            match map(start.0, room.size, FIXED_NOREPLACE) {
                // Another tool was quicker, or the kernel is older than that flag.
                Err(InjectError::Call(_, Errno::EEXIST | Errno::EINVAL)) => {}
                other => return other,
            }
        }
        map(0, room.size, 0)
    }

    /// A raw thread in memory that is filled, with more flags.
    fn clone_into(&self, start: RemoteAddr, more: u64) -> Result<u64, InjectError> {
        let Prepared { layout, room, .. } = self.prepared;
        let tcb = start.offset(room.tcb);
        let args = [THREAD | more, room.entry(start).0, 0, tcb.offset(layout.tid).0, tcb.0, 0];
        self.call(syscall::CLONE, args, Room::mail(start).0)
    }

    /// To the beginning of a system call, or to its end.
    fn to_syscall(&self) -> Result<(), InjectError> {
        let lwp = self.stopped.lwp();
        let failed = |errno| ControlError::System(lwp, errno);
        go_to_syscall(lwp, 0).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match poll_change(lwp) {
                Ok(Change::Signalled(AT_SYSCALL)) => return Ok(()),
                // Its process is stopped: not yet where we want it. It stops like the others when we let it go.
                Ok(Change::Stopped) => go_to_syscall(lwp, 0).map_err(failed)?,
                // All that can be blocked are. SIGSTOP cannot, and would be lost.
                Ok(Change::Signalled(signal)) => go_to_syscall(lwp, signal).map_err(failed)?,
                Ok(Change::Ended) => return Err(ControlError::System(lwp, Errno::ESRCH).into()),
                Ok(Change::None) if begun.elapsed() > PATIENCE => return Err(failed(Errno::ETIMEDOUT).into()),
                Ok(Change::None) | Err(Errno::EINTR) => nap(begun),
                Err(errno) => return Err(failed(errno).into()),
            }
        }
    }

    /// Writes all that the raw thread finds in the memory at `place`, with what it shares with the others.
    fn fill(&self, place: (RemoteAddr, u64), shared: SharedWords) -> Result<(), InjectError> {
        let Prepared { mem, layout, code, room, request, .. } = self.prepared;
        let parts = room.fill(place, layout, code, shared, *request);
        parts.iter().try_for_each(|(at, bytes)| super::write(mem, *at, bytes))
    }
}

fn general_registers(stopped: &StoppedThread) -> Result<GeneralRegisters, InjectError> {
    GeneralRegisters::from_bytes(&stopped.registers(RegisterSet::General)?).ok_or(InjectError::NoVictim)
}

/// **Stops** a thread, makes a raw thread by it, and lets it go. The only thread of a program is let go at once where
/// something is half done, and stays until the raw thread has ended elsewhere.
pub(super) fn make_thread(
    prepared: &Prepared<'_>,
    victim: &Victim,
    alone: Option<&Alone<'_>>,
) -> Result<MadeThread, InjectError> {
    let live = prepared.live;
    let shared = shared(live, victim.pointer).ok_or(InjectError::NoVictim)?;
    let hurry = Hurry::new();
    let stopped = match prepared.force {
        false => stop_if_allowed(live, victim.lwp)?,
        true => StoppedThread::stop_by_force(live.pid(), victim.lwp)?,
    };
    let begun = stopped.asked();
    // It goes by numbers up to here. Now that one of its threads is ours, they cannot become another process's.
    live.check_identity()?;
    if alone.is_some_and(|alone| !alone.is_safe(&stopped)) {
        return Err(InjectError::InLibc(live.pid()));
    }
    let hijacked = Hijacked::new(prepared, victim, &stopped)?;
    let (start, size) = hijacked.map()?;
    let made = hijacked.fill((start, size), shared).and_then(|()| match alone {
        None => hijacked.clone_into(start, 0),
        Some(_) => {
            tell_of_others(prepared, victim)?;
            answering(live, &prepared.mem, start, || hijacked.clone_into(start, AND_WAIT))
        }
    });
    if made.is_err() {
        let _ = hijacked.call(syscall::MUNMAP, [start.0, size, 0, 0, 0, 0], 0);
    }
    let interrupted = stopped.visible_interruption();
    drop(hijacked);
    drop(stopped);
    let pause = begun.elapsed();
    drop(hurry);
    made.map(|_| MadeThread { start, pause, interrupted })
}

/// Of a thread's descriptor: whether there are others. Every glibc for x86-64 has it at this place.
const HAS_OTHERS: u64 = 0x18;

/// Tells a thread that there are others, as `pthread_create` tells its caller: here another thread calls it. The C library
/// asks this word whether it needs locks and atomic instructions: 2.31 always, 2.36 and 2.41 in some functions of malloc.
fn tell_of_others(prepared: &Prepared<'_>, victim: &Victim) -> Result<(), InjectError> {
    let word = victim.pointer.0.checked_add(HAS_OTHERS).ok_or(InjectError::NoVictim)?;
    prepared.mem.write_all_at(&1u32.to_le_bytes(), word).map_err(|_| InjectError::NoVictim)
}

/// Runs `act`, and meanwhile tells a raw thread that could not create another that this is known: it waits for that, and the
/// thread that `act` waits for waits for it.
fn answering<R>(
    live: &Live,
    mem: &File,
    start: RemoteAddr,
    act: impl FnOnce() -> Result<R, InjectError>,
) -> Result<R, InjectError> {
    let has_failed = AtomicBool::new(false);
    let is_done = AtomicBool::new(false);
    let mail = Room::mail(start);
    let at = |field: usize| mail.offset(field as u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if live.read_u32(at(offset_of!(Mail, state))) == Ok(step::NO_THREAD) {
                    has_failed.store(true, Ordering::Relaxed);
                    let _ = super::write(mem, at(offset_of!(Mail, go)), &go::AWAY.to_le_bytes());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = act();
        is_done.store(true, Ordering::Relaxed);
        result
    })
    .and_then(|result| match has_failed.into_inner() {
        // It has given its memory back.
        true => Err(InjectError::Inside(super::NO_THREAD)),
        false => Ok(result),
    })
}

/// **Stops** a thread whose seccomp filters, which its new threads inherit, allow all that is to be done. It may have
/// confined itself since all threads were looked at. Where the filters can be read in no other way, they are read from
/// the stopped thread: one that ran, and so repeats nothing.
fn stop_if_allowed(live: &Live, lwp: Lwp) -> Result<StoppedThread, InjectError> {
    let pid = live.pid();
    let is_filtered = status_of(pid, lwp).ok_or(InjectError::NoVictim)?.seccomp != 0;
    let read = if is_filtered { live.seccomp_filters(lwp) } else { Some(Vec::new()) };
    if let Some(filters) = read {
        calls::check(pid, &filters)?;
        return Ok(StoppedThread::stop(pid, lwp)?);
    }
    if !has_capability(CAP_SYS_ADMIN) {
        return Err(InjectError::Seccomp(pid, "only root can read what they allow".to_owned()));
    }
    let stopped = StoppedThread::stop(pid, lwp)?;
    let mut filters = Vec::new();
    while filters.len() < 1024 {
        match seccomp_filter(lwp, filters.len()) {
            Ok(Some(filter)) => filters.push(filter),
            Ok(None) => break,
            Err(errno) => {
                let why = format!("what they allow cannot be read from here ({errno})");
                return Err(InjectError::Seccomp(pid, why));
            }
        }
    }
    calls::check(pid, &filters).map(|()| stopped)
}

/// Whether a stopped thread is in a sequence that the kernel would have it begin anew.
fn is_in_sequence(live: &Live, lwp: Lwp) -> bool {
    rseq_area(lwp).is_some_and(|area| live.read_u64(RemoteAddr(area).offset(8)) != Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;
    use crate::act::inject::victim;
    use crate::look::{Names, Scope, look};
    use crate::target::KernelFacts;
    use testkit::{Build, Fixture, Value, Variant, eventually, serde_json};

    fn live(fixture: &Fixture) -> Live {
        Live::open(Pid(fixture.pid())).unwrap()
    }

    impl<'a> Prepared<'a> {
        fn of(live: &'a Live) -> Self {
            Self::new(live, None, &Options::default()).unwrap()
        }

        fn victims(&self) -> Vec<Victim> {
            victim::candidates(self.live, &look(self.live, Scope::Threads, Names::None).unwrap())
        }

        /// Some thread of it, once one can be had.
        fn victim(&self) -> Victim {
            let mut found = None;
            eventually("a thread should be fit to be stopped", || {
                found = self.victims().first().copied();
                found.is_some()
            });
            found.unwrap()
        }

        /// What `act` returns, done while a thread of it is ours.
        fn while_hijacked<R>(&self, act: impl FnOnce(&Hijacked<'_>) -> R) -> R {
            let victim = self.victim();
            let stopped = StoppedThread::stop(self.live.pid(), victim.lwp).unwrap();
            act(&Hijacked::new(self, &victim, &stopped).unwrap())
        }
    }

    /// A program whose threads sleep.
    fn sleeping() -> Fixture {
        Fixture::start(&Build::new("inject_refuse.c").variant(Variant::Default).path(), &[]).settled()
    }

    /// Whether anything is mapped there now.
    fn is_mapped(live: &Live, at: RemoteAddr) -> bool {
        let text = std::fs::read(format!("/proc/{}/maps", live.pid())).unwrap();
        crate::proc::map_at(&crate::proc::parse_maps(&text).0, at).is_some()
    }

    /// The new thread and all it has made may have ended, and its memory be gone, before the thread that made it wakes.
    #[test]
    fn a_thread_finds_its_way_back_when_the_memory_has_gone() {
        testkit::needs_ptrace!();
        let mut fixture = sleeping();
        let live = &live(&fixture);
        let prepared = Prepared::of(live);
        let victim = prepared.victim();
        let call = || testkit::task_state(live.pid().0, victim.lwp.0).map(|task| task.call);
        let before = call();
        let stopped = StoppedThread::stop(live.pid(), victim.lwp).unwrap();
        let hijacked = std::mem::ManuallyDrop::new(Hijacked::new(&prepared, &victim, &stopped).unwrap());
        let place = hijacked.map().unwrap();
        hijacked.fill(place, shared(live, victim.pointer).unwrap()).unwrap();
        hijacked.clone_into(place.0, 0).unwrap();
        // As another tool would, for which an agent is at work already.
        let go = Room::mail(place.0).offset(std::mem::offset_of!(table::control::Mail, go) as u64);
        prepared.mem.write_all_at(&table::control::go::AWAY.to_le_bytes(), go.0).unwrap();
        eventually("the memory should be given back", || !is_mapped(live, place.0));
        drop(stopped);
        eventually("the thread should sleep where it did", || call() == before);
        assert_eq!(fixture.ask("alive"), "alive");
    }

    /// Of all signals only this one gets through to a thread while it works for us.
    #[test]
    fn a_stop_that_comes_meanwhile_is_not_lost() {
        testkit::needs_ptrace!();
        let mut fixture = sleeping();
        let live = &live(&fixture);
        Prepared::of(live).while_hijacked(|hijacked| {
            let lwp = hijacked.stopped.lwp();
            crate::sys::task::send_signal(live.pid(), lwp, libc::SIGSTOP as u32).unwrap();
            hijacked.call(syscall::GETPID, [0; 6], 0).unwrap();
        });
        eventually("the program should be stopped", || {
            testkit::task_state(fixture.pid(), fixture.pid()).is_some_and(|task| task.letter == 'T')
        });
        testkit::signal(fixture.pid(), testkit::Signal::SIGCONT);
        assert_eq!(fixture.ask("alive"), "alive");
    }

    /// What was left behind is taken by the next tool, but not while a thread has not run since: it may have been let go with
    /// the call still to be made that uses it. All threads of a program that is stopped are such.
    #[test]
    fn what_a_thread_may_still_come_to_is_left_alone() {
        testkit::needs_ptrace!();
        let mut fixture = sleeping();
        let live = &live(&fixture);
        let (start, _) = Prepared::of(live).while_hijacked(|hijacked| hijacked.map().unwrap());
        let is_found = || Leftover::find(live).is_some_and(|left| left.start == start);
        eventually("it should be found", is_found);
        testkit::signal(fixture.pid(), testkit::Signal::SIGSTOP);
        let state = |lwp: Lwp| testkit::task_state(fixture.pid(), lwp.0).map(|task| task.letter);
        eventually("all should stop", || live.lwps().unwrap().into_iter().all(|lwp| state(lwp) == Some('T')));
        assert!(!is_found());
        testkit::signal(fixture.pid(), testkit::Signal::SIGCONT);
        eventually("it should be found again", is_found);
        assert_eq!(fixture.ask("alive"), "alive");
    }

    /// Two tools that come at the same time find the same place free.
    #[test]
    fn memory_is_at_a_place_of_ours_also_if_another_tool_was_quicker() {
        testkit::needs_ptrace!();
        let mut fixture = sleeping();
        let live = &live(&fixture);
        let expected: Vec<_> = places::free(live.maps()).take(2).collect();
        let made = Prepared::of(live).while_hijacked(|hijacked| {
            // The second does not know of the first.
            let made = [(); 2].map(|()| hijacked.map().unwrap());
            for (start, size) in made {
                hijacked.call(syscall::MUNMAP, [start.0, size, 0, 0, 0, 0], 0).unwrap();
            }
            made
        });
        assert_eq!(made.map(|(start, _)| start).to_vec(), expected);
        assert_eq!(fixture.ask("alive"), "alive");
    }

    /// Leaves a hijacked thread as the death of its tracer would, after so many steps.
    fn abandon(prepared: &Prepared<'_>, victim: &Victim, steps: u32) -> Result<(), InjectError> {
        let stopped = StoppedThread::stop(prepared.live.pid(), victim.lwp)?;
        let hijacked = std::mem::ManuallyDrop::new(Hijacked::new(prepared, victim, &stopped)?);
        // A call that changes nothing.
        let args = [1, 2, 3, 4, 5, 6];
        let calling = hijacked.regs.calling(prepared.code.syscall_ret.0, hijacked.frame.at, syscall::GETPID, args, 7);
        if steps > 0 {
            stopped.set_registers(RegisterSet::General, &calling.bytes())?;
        }
        if steps > 1 {
            stopped.set_signal_mask(SignalSet(u64::MAX))?;
        }
        for _ in 2..steps {
            hijacked.to_syscall()?;
        }
        Ok(())
    }

    #[test]
    fn a_thread_finds_its_way_back_without_us() {
        testkit::needs_ptrace!();
        let program = Build::new("inject_hammer.c").variant(Variant::Default).path();
        let mut fixture = Fixture::start(&program, &[]);
        let live = &live(&fixture);
        let prepared = Prepared::of(live);
        let mut ask = || -> Value { serde_json::from_str(&fixture.ask("progress")).unwrap() };
        let mut done = [0_u32; 5];
        for round in 0..40 {
            for victim in prepared.victims() {
                let steps = (round + victim.lwp.0 as u32) % 5;
                done[steps as usize] += u32::from(abandon(&prepared, &victim, steps).is_ok());
            }
            let before = ask();
            eventually("everything should go on", || {
                let now = ask();
                assert_eq!(now["violations"], 0, "{now}");
                let members = before.as_object().unwrap().iter();
                members
                    .filter(|(name, _)| !matches!(name.as_str(), "violations" | "signals" | "loads"))
                    .all(|(name, was)| now[name].as_u64() > was.as_u64())
            });
        }
        assert!(done.iter().all(|times| *times >= 10), "{done:?}");
        // Masks are what they were: nothing stays blocked in any thread.
        eventually("no signal should stay blocked", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", live.pid())).unwrap().flatten();
            let all: Vec<_> = tasks.map(|task| std::fs::read(task.path().join("status")).unwrap_or_default()).collect();
            all.iter().filter_map(|text| crate::proc::parse_status(text)).all(|status| status.blocked == SignalSet(0))
        });
    }
}
