//! td_sync_setstate.

use super::{object, type_of};
use crate::abi::{SyncHandle, Td, TdErr, code};
use crate::agent::Agent;
use crate::picture::Depth;
use crate::ps::{PS_OK, imports};
use std::ffi::c_int;
use threadglass::control::set_state::{Plan, SetError, apply, find_sharers, hold, plan};
use threadglass::model::{Evidence, HolderStatus, SyncObject};
use threadglass::proc::KernelState;
use threadglass::target::{Live, Target};
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
        let (agent, address) = unsafe { object(sh) }?;
        let _stopped = agent.stopping()?;
        if agent.core().is_some() {
            return Err(TdErr::DbErr);
        }
        let result = set(&agent, address, value);
        agent.forget();
        result
    })())
}

fn set(agent: &Agent, address: RemoteAddr, value: c_int) -> Td {
    let mut picture = agent.new_picture(Depth::Waits)?;
    if picture.object(address).is_none() {
        picture = agent.new_picture(Depth::All)?;
    }
    picture.looking(agent, |target| {
        let now = picture.read(agent, target, address)?.filter(|now| now.is_plausible).ok_or(TdErr::BadSh)?;
        type_of(&now.object).ok_or(TdErr::BadSh)?;
        let plan = plan(&now.object, &now.raw, value).map_err(set_error)?;
        if now.object.evidence > Evidence::Derived {
            // What is written on a guess may be anything.
            return Err(TdErr::NoCapab);
        }
        match picture.live() {
            Some(live) => on_live(agent, live, target, &now.object, &plan),
            // Whatever the debugger shows us is stopped, or is a core and cannot be written.
            None => by_client(agent, &plan, &concerned(&now.object, &plan)),
        }
    })
}

fn set_error(error: SetError) -> TdErr {
    match error {
        SetError::NotCapable(_) => TdErr::NoCapab,
        SetError::NoState(..) | SetError::BadValue(_) | SetError::Destroyed(_) | SetError::Moving(_) => TdErr::Err,
        SetError::Implausible(_) => TdErr::BadSh,
        // It moved on while it was to be changed: nothing was written.
        SetError::Changed(_) => TdErr::Err,
        SetError::NotKept(_) | SetError::Memory(_) => TdErr::DbErr,
    }
}

fn write(agent: &Agent, plan: &Plan) -> Td {
    agent.writing(|memory| apply(memory, plan).map(drop).map_err(set_error))
}

/// The threads that have to stand still meanwhile: waiters, which begin their wait anew afterwards, and
/// holders.
fn concerned(object: &SyncObject, plan: &Plan) -> Vec<Lwp> {
    let alive = object.holders.iter().filter(|holder| holder.status == HolderStatus::Alive);
    let mut lwps: Vec<Lwp> = plan.kick.iter().copied().chain(alive.filter_map(|holder| holder.lwp)).collect();
    lwps.sort_unstable();
    lwps.dedup();
    lwps
}

fn on_live(agent: &Agent, live: &Live, target: &dyn Target, object: &SyncObject, plan: &Plan) -> Td {
    let lwps = concerned(object, plan);
    let facts = target.facts(&lwps);
    let mut to_hold = Vec::new();
    for (lwp, facts) in lwps.iter().zip(&facts) {
        match facts {
            None => {}
            // Whoever stopped it makes it begin its wait anew by letting it go on.
            Some(facts) if facts.state == KernelState::Traced => {}
            Some(facts) if facts.tracer != 0 && plan.kick.contains(lwp) => return Err(TdErr::NoCapab),
            Some(facts) if facts.tracer != 0 => {}
            Some(_) => to_hold.push(*lwp),
        }
    }
    if agent.service().is_some() && imports().lstop.is_some() && imports().lcontinue.is_some() {
        return by_client(agent, plan, &to_hold);
    }
    let mut threads: Vec<(Pid, Lwp)> = to_hold.iter().map(|lwp| (live.pid(), *lwp)).collect();
    if object.shared != Some(false) {
        threads.extend(find_sharers(live, object.address, object.size.unwrap_or(4)).waiters);
    }
    let held = hold(&threads);
    // A holder that runs on is no harm; a waiter that would never notice is.
    let is_waiter = |lwp: &Lwp| plan.kick.contains(lwp) && live_has(live, *lwp);
    if held.refused().iter().any(|not| not.pid == live.pid() && is_waiter(&not.lwp)) {
        return Err(TdErr::NoCapab);
    }
    let result = write(agent, plan);
    held.release();
    result
}

fn live_has(live: &Live, lwp: Lwp) -> bool {
    use threadglass::target::KernelFacts;
    live.has_thread(lwp)
}

/// Writes while the client's own routines hold `lwps` still, where it has such.
fn by_client(agent: &Agent, plan: &Plan, lwps: &[Lwp]) -> Td {
    let (Some(stop), Some(_)) = (imports().lstop, imports().lcontinue) else { return write(agent, plan) };
    let mut stopped = Resuming(agent, Vec::new());
    for lwp in lwps {
        // What was suspended for the client stays so, and begins its wait anew when it is resumed.
        if agent.stopped_by_client().contains(lwp) {
            continue;
        }
        // SAFETY: the client's handle, which it keeps valid while it calls us.
        if unsafe { stop(agent.ph(), lwp.0) } != PS_OK {
            match plan.kick.contains(lwp) {
                true => return Err(TdErr::DbErr),
                false => continue,
            }
        }
        stopped.1.push(*lwp);
    }
    write(agent, plan)
}

/// Lets threads go on that the client's routine has stopped, also when the client throws.
struct Resuming<'a>(&'a Agent, Vec<Lwp>);

impl Drop for Resuming<'_> {
    fn drop(&mut self) {
        for lwp in &self.1 {
            self.0.client_continue(*lwp);
        }
    }
}
