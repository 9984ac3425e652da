//! td_thr_get_info and td_thr_validate.

use crate::abi::{SigSet, Td, TdErr, ThrEvents, ThrHandle, ThrInfo, code};
use crate::client::psaddr;
use crate::facts;
use crate::session::{Session, Who, look_error, thread_or_task};
use std::ffi::c_int;
use std::ptr;
use threadglass::internals::Inspector;
use threadglass::internals::glibc::Descriptor;
use threadglass::model::{SignalSet, Task, Thread, ThreadState, ThreadType};
use threadglass::{PthreadId, RemoteAddr};

/// Fills in what is known about a thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or points to a writable `td_thrinfo_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_get_info(th: *const ThrHandle, out: *mut ThrInfo) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so a writable structure of which all-zero bytes are a valid value.
        unsafe { out.write_bytes(0, 1) };
        // SAFETY: by the caller's promise.
        let (session, who) = unsafe { thread_or_task(th) }?;
        let _stopped = match who {
            Who::Thread(id) => session.stopping_for(id)?,
            Who::Early | Who::Task(_) => session.stopping()?,
        };
        let mut info = match who {
            Who::Task(id) => of_task(&session.task(id)?),
            Who::Thread(id) => {
                let thread = session.inspect(|inspector| {
                    let descriptor = used_descriptor(&session, inspector, id)?;
                    Ok(describe(&session, inspector, &descriptor))
                })?;
                fill(&session, &thread)
            }
            Who::Early => early(&session)?,
        };
        // SAFETY: `th` was read above.
        info.ti_ta_p = unsafe { (*th).th_ta_p };
        // SAFETY: not NULL, as above.
        unsafe { out.write(info) };
        Ok(())
    })())
}

/// The descriptor of thread `id`, or of whoever runs on it.
pub(crate) fn used_descriptor(session: &Session, inspector: &Inspector<'_>, id: PthreadId) -> Td<Descriptor> {
    let descriptor = inspector.descriptor_at(id).map_err(look_error)?;
    if descriptor.is_given_back() && session.lwp_on(inspector, &descriptor).is_none() {
        return Err(TdErr::BadTh);
    }
    Ok(descriptor)
}

/// Everything known of the thread with this descriptor.
pub(crate) fn describe(session: &Session, inspector: &Inspector<'_>, descriptor: &Descriptor) -> Thread {
    let lwp = session.lwp_on(inspector, descriptor);
    let facts = lwp.and_then(|lwp| {
        let facts = inspector.target.and_then(|target| facts::of_thread(&session.facts, target, lwp));
        match facts {
            // The registers of this thread alone: a client may take long to give them.
            Some(facts) => Some(session.seen_through_stop(session.as_before_stop(facts))),
            // A core has no `/proc`, but its registers tell whether a thread was asleep in a system call.
            None => session.facts_by_registers(lwp),
        }
    });
    let mut thread = inspector.describe(descriptor, facts.as_ref());
    if lwp.is_some_and(|lwp| session.has_suspended(lwp)) {
        thread.db_suspended = true;
        thread.state = suspended(thread.state);
    }
    thread
}

/// The state of a thread that is held suspended, of one that would be in `state`.
fn suspended(state: ThreadState) -> ThreadState {
    match state {
        ThreadState::Sleep | ThreadState::StoppedAsleep => ThreadState::StoppedAsleep,
        ThreadState::Zombie => ThreadState::Zombie,
        _ => ThreadState::Stopped,
    }
}

/// The main thread of a program that has not set up its threads: only its LWP is known.
fn early(session: &Session) -> Td<ThrInfo> {
    if session.is_initialised()? {
        return Err(TdErr::BadTh);
    }
    let mut info = empty();
    info.ti_lid = session.pid().unwrap_or(0);
    info.ti_state = number(ThreadState::Active);
    info.ti_type = 1;
    Ok(info)
}

fn empty() -> ThrInfo {
    ThrInfo {
        ti_ta_p: ptr::null_mut(),
        ti_user_flags: 0,
        ti_tid: 0,
        ti_tls: ptr::null_mut(),
        ti_startfunc: ptr::null_mut(),
        ti_stkbase: ptr::null_mut(),
        ti_stksize: 0,
        ti_ro_area: ptr::null_mut(),
        ti_ro_size: 0,
        ti_state: 0,
        ti_db_suspended: 0,
        ti_type: 0,
        ti_pc: 0,
        ti_sp: 0,
        ti_flags: 0,
        ti_pri: 0,
        ti_lid: 0,
        ti_sigmask: [0; 16],
        ti_traceme: 0,
        ti_preemptflag: 0,
        ti_pirecflag: 0,
        ti_pending: [0; 16],
        ti_events: ThrEvents { event_bits: [0; 2] },
    }
}

/// Number of a state in `td_thr_state_e`.
pub(crate) fn number(state: ThreadState) -> c_int {
    ThreadState::ALL.iter().position(|other| *other == state).map_or(1, |place| place as c_int + 1)
}

fn type_number(kind: Option<ThreadType>) -> c_int {
    match kind {
        Some(ThreadType::System) => 2,
        _ => 1,
    }
}

/// What is known of a task. What only threads have (priority, signals, events, thread-specific data) stays 0.
fn of_task(task: &Task) -> ThrInfo {
    let address = |addr: Option<RemoteAddr>| addr.map_or(ptr::null_mut(), psaddr);
    ThrInfo {
        ti_tid: task.id,
        ti_startfunc: address(task.start),
        ti_stkbase: address(task.stack.map(|stack| stack.base)),
        ti_stksize: task.stack.map_or(0, |stack| stack.size as i64),
        ti_ro_area: psaddr(task.address),
        ti_state: number(task.state),
        ti_type: type_number(Some(task.kind)),
        ti_pc: task.pc.map_or(0, |pc| pc.0 as isize),
        ti_sp: task.sp.map_or(0, |sp| sp.0 as isize),
        ti_lid: task.carried_by.map_or(0, |lwp| lwp.0),
        ..empty()
    }
}

fn fill(session: &Session, thread: &Thread) -> ThrInfo {
    let address = |addr: Option<RemoteAddr>| addr.map_or(ptr::null_mut(), psaddr);
    let set = |signals: Option<SignalSet>| -> SigSet {
        let mut set = [0; 16];
        set[0] = signals.map_or(0, |signals| signals.0);
        set
    };
    let id = thread.id.map(|id| id.0);
    ThrInfo {
        ti_user_flags: thread.user_flags.unwrap_or(0),
        ti_tid: id.map_or(0, |id| id.0),
        ti_tls: address(thread.specific).cast(),
        ti_startfunc: address(thread.start),
        ti_stkbase: address(thread.stack.map(|stack| stack.base)),
        ti_stksize: thread.stack.map_or(0, |stack| stack.size as i64),
        ti_ro_area: address(id),
        ti_ro_size: session.layout().ok().and_then(|layout| layout.size).unwrap_or(0) as c_int,
        ti_state: number(thread.state),
        ti_db_suspended: u8::from(thread.db_suspended),
        ti_type: type_number(thread.kind),
        ti_pc: thread.pc.map_or(0, |pc| pc.0 as isize),
        ti_sp: thread.sp.map_or(0, |sp| sp.0 as isize),
        ti_flags: thread.flags.unwrap_or(0) as i16,
        ti_pri: thread.priority.unwrap_or(0),
        // A thread that has exited has no LWP; debuggers skip -1.
        ti_lid: thread.lwp.map_or(-1, |lwp| lwp.0),
        ti_sigmask: set(thread.signal_mask),
        ti_traceme: u8::from(thread.traced_events.unwrap_or(false)),
        ti_preemptflag: u8::from(thread.preempted.unwrap_or(false)),
        ti_pirecflag: u8::from(thread.inherited_priority.unwrap_or(false)),
        ti_pending: set(thread.pending),
        ti_events: ThrEvents { event_bits: thread.events.unwrap_or([0; 2]) },
        ..empty()
    }
}

/// Whether a handle stands for a thread of the process.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_validate(th: *const ThrHandle) -> c_int {
    code((|| {
        // SAFETY: NULL or a handle, by the caller's promise.
        if unsafe { th.as_ref() }.is_none_or(|handle| handle.th_ta_p.is_null()) {
            return Err(TdErr::BadTh);
        }
        // SAFETY: by the caller's promise.
        let (session, who) = unsafe { thread_or_task(th) }?;
        let _stopped = session.stopping()?;
        let is_there = match who {
            Who::Early => return Err(TdErr::BadTh),
            Who::Thread(id) => is_listed(&session, id)?,
            Who::Task(id) => match session.task(id) {
                Ok(_) => true,
                Err(TdErr::BadTh) => false,
                Err(error) => return Err(error),
            },
        };
        if is_there { Ok(()) } else { Err(TdErr::NoThr) }
    })())
}

/// Whether `id` is on the thread lists.
pub(crate) fn is_listed(session: &Session, id: PthreadId) -> Td<bool> {
    let threads = session.inspect(|inspector| inspector.list().map_err(look_error))?;
    Ok(threads.iter().any(|thread| thread.id == id))
}
