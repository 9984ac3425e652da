//! Registers of a thread.

use crate::abi::{FPREGS_SIZE, GREGS_SIZE, Td, TdErr, ThrHandle, code};
use crate::client::registers_answer;
use crate::info::used_descriptor;
use crate::ps::{PS_NOXREGS, PS_OK, imports};
use crate::session::{Session, Who, thread, thread_or_task};
use crate::suspend::control_error;
use crate::tasks::{TaskId, TaskRegisters, registers_of};
use std::ffi::{c_int, c_void};
use threadglass::act::RegisterSet;
use threadglass::look::TaskScope;
use threadglass::{Lwp, PthreadId};

/// The LWP of a living thread.
pub(crate) fn lwp_of(session: &Session, id: PthreadId) -> Td<Lwp> {
    session.inspect(|inspector| {
        let descriptor = used_descriptor(session, inspector, id)?;
        session.lwp_on(inspector, &descriptor).ok_or(TdErr::NoLwp)
    })
}

fn get(session: &Session, lwp: Lwp, set: RegisterSet) -> Td<Vec<u8>> {
    if let Some(core) = session.core() {
        let registers = match set {
            RegisterSet::General => core.registers(lwp).map(|registers| registers.bytes()),
            RegisterSet::Float => core.floating_registers(lwp),
            RegisterSet::Extended => core.extended_registers(lwp),
        };
        return registers.ok_or(match set {
            RegisterSet::General => TdErr::DbErr,
            RegisterSet::Float => TdErr::NoFpregs,
            RegisterSet::Extended => TdErr::NoXregs,
        });
    }
    match session.client() {
        Some(client) => client.register_bytes(lwp, set),
        None => own(session, |pid| session.tracing(pid, |tracer| tracer.registers(lwp, set)).map_err(control_error)),
    }
}

/// Runs `act` with the pid of a process of our own.
fn own<R>(session: &Session, act: impl FnOnce(threadglass::Pid) -> Td<R>) -> Td<R> {
    act(threadglass::Pid(session.pid().ok_or(TdErr::DbErr)?))
}

/// How often the registers of a task are read anew that was put on another thread meanwhile.
const TRIES: usize = 4;

/// The registers of a task: those of the thread that runs it, or those that its runtime has saved. Whether those are all.
fn of_task(session: &Session, id: TaskId, set: RegisterSet) -> Td<(Vec<u8>, bool)> {
    let mut task = session.task(id)?;
    for _ in 0..TRIES {
        let lwp = match (registers_of(&task)?, set) {
            (TaskRegisters::Saved(saved), RegisterSet::General) => return Ok((saved, false)),
            (TaskRegisters::Saved(_), RegisterSet::Float) => return Err(TdErr::NoFpregs),
            (TaskRegisters::Saved(_), RegisterSet::Extended) => return Err(TdErr::NoXregs),
            (TaskRegisters::OnLwp(lwp), _) => lwp,
        };
        let registers = get(session, lwp, set);
        task = session.new_tasks(TaskScope::List)?.task(id).cloned().ok_or(TdErr::BadTh)?;
        if task.carried_by == Some(lwp) {
            return registers.map(|registers| (registers, true));
        }
    }
    Err(TdErr::Err)
}

/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or has room for `size` bytes.
unsafe fn get_into(th: *const ThrHandle, out: *mut c_void, set: RegisterSet, size: usize) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: by the caller's promise.
        let (session, who) = unsafe { thread_or_task(th) }?;
        let _stopped = session.stopping()?;
        let (registers, is_all) = match who {
            Who::Early => return Err(TdErr::BadTh),
            Who::Thread(id) => (get(&session, lwp_of(&session, id)?, set)?, true),
            Who::Task(id) => of_task(&session, id, set)?,
        };
        if registers.len() != size {
            return Err(TdErr::DbErr);
        }
        // SAFETY: room for `size` bytes by the caller's promise, and exactly that many are there.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(registers.as_ptr(), size) };
        if is_all { Ok(()) } else { Err(TdErr::PartialReg) }
    })())
}

type SetRoutine = unsafe extern "C-unwind" fn(*mut crate::abi::PsProc, c_int, *const c_void) -> c_int;

/// # Safety
///
/// `th` is NULL or points to a handle; `from` is NULL or has `size` bytes.
unsafe fn set_from(
    th: *const ThrHandle,
    from: *const c_void,
    set: RegisterSet,
    size: usize,
    routine: Option<SetRoutine>,
) -> c_int {
    code((|| {
        if from.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let _stopped = session.stopping()?;
        let lwp = lwp_of(&session, id)?;
        session.forget();
        if session.client().is_some() {
            let routine = routine.ok_or(TdErr::DbErr)?;
            // SAFETY: the client's handle and registers, passed on as they came.
            return registers_answer(unsafe { routine(session.ph(), lwp.0, from) });
        }
        if session.core().is_some() {
            return Err(TdErr::DbErr);
        }
        // SAFETY: `size` bytes by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) }.to_vec();
        own(&session, |pid| session.tracing(pid, |tracer| tracer.set_registers(lwp, set, bytes)).map_err(control_error))
    })())
}

/// General registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or a `prgregset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_getgregs(th: *const ThrHandle, out: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { get_into(th, out, RegisterSet::General, GREGS_SIZE) }
}

/// Sets general registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `from` is NULL or a `prgregset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_setgregs(th: *const ThrHandle, from: *const c_void) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { set_from(th, from, RegisterSet::General, GREGS_SIZE, imports().lsetregs) }
}

/// Floating-point registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or a `prfpregset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_getfpregs(th: *const ThrHandle, out: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { get_into(th, out, RegisterSet::Float, FPREGS_SIZE) }
}

/// Sets floating-point registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `from` is NULL or a `prfpregset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_setfpregs(th: *const ThrHandle, from: *const c_void) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { set_from(th, from, RegisterSet::Float, FPREGS_SIZE, imports().lsetfpregs) }
}

/// Size of the extended registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_getxregsize(th: *const ThrHandle, out: *mut c_int) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let _stopped = session.stopping()?;
        let size = xregsize(&session, lwp_of(&session, id)?)?;
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(size) };
        Ok(())
    })())
}

fn xregsize(session: &Session, lwp: Lwp) -> Td<c_int> {
    let size = match session.client() {
        None => c_int::try_from(get(session, lwp, RegisterSet::Extended)?.len()).unwrap_or(0),
        Some(_) => {
            let routine = imports().lgetxregsize.ok_or(TdErr::NoXregs)?;
            let mut size = 0;
            // SAFETY: the client's handle; `size` is a live int.
            match unsafe { routine(session.ph(), lwp.0, &raw mut size) } {
                PS_OK => size,
                PS_NOXREGS => 0,
                _ => return Err(TdErr::DbErr),
            }
        }
    };
    if size > 0 { Ok(size) } else { Err(TdErr::NoXregs) }
}

/// Extended registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or has the room that td_thr_getxregsize said.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_getxregs(th: *const ThrHandle, out: *mut c_void) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let _stopped = session.stopping()?;
        let lwp = lwp_of(&session, id)?;
        if session.client().is_some() {
            let routine = imports().lgetxregs.ok_or(TdErr::NoXregs)?;
            // SAFETY: the client's handle and buffer, passed on as they came.
            return registers_answer(unsafe { routine(session.ph(), lwp.0, out) });
        }
        let registers = get(&session, lwp, RegisterSet::Extended)?;
        // SAFETY: room for the size the kernel reports, by the caller's promise.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(registers.as_ptr(), registers.len()) };
        Ok(())
    })())
}

/// Sets extended registers.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `from` is NULL or has the bytes that td_thr_getxregsize said.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_setxregs(th: *const ThrHandle, from: *const c_void) -> c_int {
    if from.is_null() {
        return TdErr::Err as c_int;
    }
    let size = (|| {
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        match session.client() {
            // The client knows how many there are.
            Some(_) => imports().lsetxregs.map(|_| 0).ok_or(TdErr::NoXregs),
            None => Ok(xregsize(&session, lwp_of(&session, id)?)? as usize),
        }
    })();
    match size {
        // SAFETY: by the caller's promise.
        Ok(size) => unsafe { set_from(th, from, RegisterSet::Extended, size, imports().lsetxregs) },
        Err(error) => error as c_int,
    }
}
