//! td_sync_setstate.

use super::{object, type_of};
use crate::abi::{SyncHandle, Td, TdErr, code};
use crate::picture::Depth;
use crate::ps::{PS_OK, imports};
use crate::session::Session;
use std::ffi::c_int;
use threadglass::act::set_state::{Concerned, SetError, apply, carry_out, find_sharers, plan};
use threadglass::internals::KernelState;
use threadglass::model::Evidence;
use threadglass::target::{KernelFacts, Target};
use threadglass::{Lwp, Pid, RemoteAddr};

/// Forces the state of a synchronization object, and makes its waiters notice.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_setstate(sh: *const SyncHandle, value: c_int) -> c_int {
    code((|| {
        // SAFETY: by the caller's promise.
        let (session, address) = unsafe { object(sh) }?;
        let _stopped = session.stopping()?;
        if session.core().is_some() {
            return Err(TdErr::DbErr);
        }
        let result = set(&session, address, value);
        session.forget();
        result
    })())
}

fn set(session: &Session, address: RemoteAddr, value: c_int) -> Td {
    let mut picture = session.new_picture(Depth::Waits)?;
    if picture.object(address).is_none() {
        picture = session.new_picture(Depth::All)?;
    }
    picture.looking(session, |target| {
        let now = picture.read(session, target, address)?.filter(|now| now.is_plausible).ok_or(TdErr::BadSh)?;
        type_of(&now.object).ok_or(TdErr::BadSh)?;
        let plan = plan(&now.object, &now.raw, value).map_err(set_error)?;
        if now.object.evidence > Evidence::Derived {
            // What is written on a guess may be anything.
            return Err(TdErr::NoCapab);
        }
        let (live, pid) = (picture.live(), target.pid());
        if live.is_some() && session.live_to_act().is_none() {
            return Err(TdErr::DbErr);
        }
        let size = now.object.size.unwrap_or(4);
        let elsewhere = live.map(|live| find_sharers(live, address, size).waiters).unwrap_or_default();
        let mut concerned = Concerned::by(&plan, pid, &now.object.holders, &elsewhere);
        if live.is_some() {
            leave_traced(target, &mut concerned)?;
        }
        let _stopped = stop_by_client(session, pid, &mut concerned)?;
        if live.is_none() {
            // Whatever the debugger shows us is stopped, or is a core and cannot be written.
            concerned = Concerned::default();
        }
        let written = carry_out(&concerned, |refused| {
            // A holder that runs on is no harm; a waiter that would never notice is.
            if refused.iter().any(|not| not.pid == pid && live.is_some_and(|live| live.has_thread(not.lwp))) {
                return Err(TdErr::NoCapab);
            }
            session.writing(|memory| apply(memory, &plan).map_err(set_error))
        });
        written.map(drop)
    })
}

fn set_error(error: SetError) -> TdErr {
    match error {
        SetError::NotCapable(_) | SetError::NotWoken(..) => TdErr::NoCapab,
        SetError::NoState(..) | SetError::BadValue(_) | SetError::Destroyed(_) | SetError::Moving(_) => TdErr::Err,
        SetError::Implausible(_) => TdErr::BadSh,
        // It moved on while it was to be changed: nothing was written.
        SetError::Changed(_) => TdErr::Err,
        SetError::NotKept(_) | SetError::Memory(_) => TdErr::DbErr,
    }
}

/// Leaves out threads of `target` that somebody else has stopped, or has to himself.
fn leave_traced(target: &dyn Target, concerned: &mut Concerned) -> Td {
    let pid = target.pid();
    let lwps: Vec<Lwp> = concerned.all().filter(|(of, _)| *of == pid).map(|(_, lwp)| lwp).collect();
    let mut left_out = Vec::new();
    for (lwp, facts) in lwps.iter().zip(target.facts(&lwps)) {
        match facts {
            // Whoever stopped it makes it begin its wait anew by letting it go on.
            Some(facts) if facts.state == KernelState::Traced => left_out.push(*lwp),
            Some(facts) if facts.tracer == 0 => {}
            Some(_) if concerned.waiters.contains(&(pid, *lwp)) => return Err(TdErr::NoCapab),
            _ => left_out.push(*lwp),
        }
    }
    concerned.retain(|of, lwp| of != pid || !left_out.contains(&lwp));
    Ok(())
}

/// Holds the threads of `pid` still by the client's own routines, where it has such, and takes them off those
/// `concerned`.
fn stop_by_client<'a>(session: &'a Session, pid: Pid, concerned: &mut Concerned) -> Td<Resuming<'a>> {
    let mut stopped = Resuming(session, Vec::new());
    let (Some(_), Some(stop), Some(_)) = (session.client(), imports().lstop, imports().lcontinue) else {
        return Ok(stopped);
    };
    for (_, lwp) in concerned.all().filter(|(of, _)| *of == pid) {
        // What was suspended for the client stays so, and begins its wait anew when it is resumed.
        if session.stopped_by_client().contains(&lwp) {
            continue;
        }
        // SAFETY: the client's handle, which it keeps valid while it calls us.
        match unsafe { stop(session.ph(), lwp.0) } {
            PS_OK => stopped.1.push(lwp),
            _ if concerned.waiters.contains(&(pid, lwp)) => return Err(TdErr::DbErr),
            _ => {}
        }
    }
    concerned.retain(|of, _| of != pid);
    Ok(stopped)
}

/// Lets threads go on that the client's routine has stopped, also when the client throws.
struct Resuming<'a>(&'a Session, Vec<Lwp>);

impl Drop for Resuming<'_> {
    fn drop(&mut self) {
        for lwp in &self.1 {
            self.0.client_continue(*lwp);
        }
    }
}
