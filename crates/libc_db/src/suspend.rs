//! Acting on a thread: suspending it, its priority, its signals.

use crate::abi::{SigSet, Td, TdErr, ThrHandle, code};
use crate::ps::{PS_OK, imports};
use crate::registers::lwp_of;
use crate::session::{Session, thread};
use std::ffi::{c_int, c_uchar};
use threadglass::act::{AdjustError, ControlError, Tracer, raise_signals, set_priority};
use threadglass::model::SignalSet;
use threadglass::target::KernelFacts;
use threadglass::{Lwp, Pid, PthreadId};

pub(crate) fn control_error(error: ControlError) -> TdErr {
    match error {
        ControlError::NoThread(..) => TdErr::NoLwp,
        ControlError::Traced(..) | ControlError::Denied(_) | ControlError::Filtered(..) | ControlError::Frozen(..) => {
            TdErr::NoCapab
        }
        ControlError::System(..) => TdErr::DbErr,
    }
}

impl Session {
    /// Undoes the client's own suspension of a thread.
    pub(crate) fn client_continue(&self, lwp: Lwp) -> bool {
        let Some(routine) = imports().lcontinue else { return false };
        // SAFETY: the client's handle, which it keeps valid while the session exists.
        unsafe { routine(self.ph(), lwp.0) == PS_OK }
    }

    /// Runs `act` with a tracer of the live process. Not possible on a core, or without permission.
    fn trace_live<R>(&self, act: impl FnOnce(&Tracer) -> Result<R, ControlError>) -> Td<R> {
        let live = self.live_to_act().ok_or(TdErr::NoCapab)?;
        self.tracing(live.pid(), act).map_err(control_error)
    }
}

/// # Safety
///
/// `th` is NULL or points to a handle.
unsafe fn on_thread(th: *const ThrHandle, act: impl FnOnce(&Session, PthreadId, Lwp) -> Td) -> c_int {
    code((|| {
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let lwp = lwp_of(&session, id)?;
        session.forget();
        act(&session, id, lwp)
    })())
}

/// Suspends one thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_dbsuspend(th: *const ThrHandle) -> c_int {
    let act = |session: &Session, _, lwp: Lwp| {
        let Some(stop) = session.client().and(imports().lstop).filter(|_| imports().lcontinue.is_some()) else {
            return session.trace_live(|tracer| tracer.suspend(lwp));
        };
        if session.stopped_by_client().contains(&lwp) {
            return Ok(());
        }
        // SAFETY: the client's handle.
        if unsafe { stop(session.ph(), lwp.0) } != PS_OK {
            return Err(TdErr::DbErr);
        }
        session.stopped_by_client().insert(lwp);
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, act) }
}

/// Resumes a thread that td_thr_dbsuspend suspended.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_dbresume(th: *const ThrHandle) -> c_int {
    let act = |session: &Session, _, lwp: Lwp| {
        let held_by_client = session.stopped_by_client().remove(&lwp);
        if held_by_client {
            if session.client_continue(lwp) {
                return Ok(());
            }
            session.stopped_by_client().insert(lwp);
            return Err(TdErr::DbErr);
        }
        if !session.has_suspended(lwp) {
            return Ok(());
        }
        // The tracer that holds it is there: nothing has to be proven to let it go.
        let pid = session.pid().map(Pid).ok_or(TdErr::NoCapab)?;
        session.tracing(pid, |tracer| tracer.resume(lwp)).map_err(control_error)
    };
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, act) }
}

/// Sets a thread's priority within its policy.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_setprio(th: *const ThrHandle, priority: c_int) -> c_int {
    let act = |session: &Session, _, lwp: Lwp| {
        let live = session.live_to_act().ok_or(TdErr::NoCapab)?;
        set_priority(Pid(live.pid().0), lwp, priority).map_err(adjust_error)
    };
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, act) }
}

fn adjust_error(error: AdjustError) -> TdErr {
    match error {
        AdjustError::CannotRemove => TdErr::NoCapab,
        AdjustError::Refused(errno) => match errno as i32 {
            libc::EPERM | libc::EACCES => TdErr::NoCapab,
            libc::ESRCH => TdErr::NoLwp,
            _ => TdErr::Err,
        },
    }
}

/// Replaces a thread's signal mask.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `set` is NULL or points to a `sigset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_sigsetmask(th: *const ThrHandle, set: *const SigSet) -> c_int {
    // SAFETY: NULL or a signal set, by the caller's promise.
    let Some(set) = (unsafe { set.as_ref() }) else { return TdErr::Err as c_int };
    let mask = SignalSet(set[0]);
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, |session, _, lwp| session.trace_live(|tracer| tracer.set_signal_mask(lwp, mask))) }
}

/// Makes exactly these signals pending for a thread. Linux can raise signals but not remove them.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `set` is NULL or points to a `sigset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_setsigpending(
    th: *const ThrHandle,
    _flag: c_uchar,
    set: *const SigSet,
) -> c_int {
    // SAFETY: NULL or a signal set, by the caller's promise.
    let Some(set) = (unsafe { set.as_ref() }) else { return TdErr::Err as c_int };
    let wanted = SignalSet(set[0]);
    let act = |session: &Session, _, lwp: Lwp| {
        let live = session.live_to_act().ok_or(TdErr::NoCapab)?;
        let facts = live.facts(&[lwp]).pop().flatten().ok_or(TdErr::NoLwp)?;
        let pending = facts.pending.ok_or(TdErr::NoCapab)?;
        raise_signals(Pid(live.pid().0), lwp, pending, wanted).map_err(adjust_error)
    };
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, act) }
}
