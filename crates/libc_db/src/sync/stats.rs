//! td_sync_get_stats and td_ta_sync_tracking_enable.
//!
//! The numbers are those of the agent inside the program, which only ever grow. Every controller has its own view
//! of them: switching on notes where they stand, switching off keeps what was counted. So two controllers do not
//! take each other's results away.

use super::info::info_of;
use super::object;
use crate::abi::{SyncHandle, SyncStats, Td, TdErr, ThrAgent, code};
use crate::session::{Session, lock};
use crate::sessions;
use std::collections::HashMap;
use std::ffi::c_int;
use threadglass::act::inject::{InjectError, Injected};
use threadglass::act::{ControllerSlot, inject};
use threadglass::internals::{Agent, Tracked};
use threadglass::model::{Evidence, SyncKind, SyncStats as Counted};
use threadglass::target::{Live, Target};
use threadglass::{Pid, RemoteAddr};

/// What this controller has asked for.
#[derive(Default)]
pub(crate) enum Tracking {
    /// Nothing: what is counted is shown as it is.
    #[default]
    Untouched,
    /// Counting since then; with this place, where the agent in the program had to be switched on for it.
    Since(HashMap<RemoteAddr, Tracked>, Option<ControllerSlot>),
    /// What was counted until it was switched off.
    Kept(HashMap<RemoteAddr, Tracked>),
}

/// Statistics of a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle; `out` is NULL or points to a writable `td_syncstats_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_get_stats(sh: *const SyncHandle, out: *mut SyncStats) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so a writable structure of which all-zero bytes are a valid value.
        unsafe { out.write_bytes(0, 1) };
        // SAFETY: by the caller's promise.
        let mut ss_info = unsafe { info_of(sh) }?;
        // SAFETY: as above.
        let (session, address) = unsafe { object(sh) }?;
        let mut ss_un = [0; 16];
        let mut result = Ok(());
        if let Some((found, is_on)) = counted(&session, address)? {
            match found {
                Some(tracked) => {
                    if ss_info.si_type == 0 {
                        // Its bytes are no such object (any more), but its statistics are those of one.
                        (ss_info.si_type, ss_info.si_size) = type_and_size(tracked.kind);
                    }
                    ss_un = words(&tracked.stats());
                }
                // Counting, and it was never used.
                None if is_on => result = Err(TdErr::BadSh),
                None => {}
            }
        }
        // SAFETY: as above.
        unsafe { out.write(SyncStats { ss_info, ss_un }) };
        result
    })())
}

/// Begins to count anew, or keeps what was counted so far.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_sync_tracking_enable(ta: *const ThrAgent, on: c_int) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        if session.core().is_some() {
            return Err(TdErr::NoCapab);
        }
        let place = if let Tracking::Since(_, place) = &*lock(&session.tracking) { *place } else { None };
        // Nothing is locked meanwhile: the client's routines run.
        let (now, place) = match session.live_to_act().filter(|live| !inject::is_preloaded(live)) {
            Some(live) => (by_injection(&session, live.pid(), on != 0).map_err(refused)?, None),
            None => by_switch(&session, on != 0, place)?,
        };
        let mut tracking = lock(&session.tracking);
        let before = std::mem::take(&mut *tracking);
        *tracking = match (on != 0, before) {
            (true, _) => Tracking::Since(now, place),
            (false, Tracking::Untouched) => Tracking::Kept(now),
            (false, Tracking::Since(start, _)) => Tracking::Kept(
                now.into_iter().filter_map(|(address, now)| Some((address, now.since(start.get(&address))?))).collect(),
            ),
            (false, kept @ Tracking::Kept(_)) => kept,
        };
        Ok(())
    })())
}

/// Switches the agent of a program that was started with it; what it has counted so far, and our place in it.
fn by_switch(
    session: &Session,
    on: bool,
    place: Option<ControllerSlot>,
) -> Td<(HashMap<RemoteAddr, Tracked>, Option<ControllerSlot>)> {
    session.looking(session.live().as_deref(), |target| {
        let found = Agent::find(target).map_err(|_| TdErr::NoCapab)?;
        let inside = found.ok_or(TdErr::NoCapab)?;
        // What was counted is read before it is switched on, and before it is switched off.
        let objects = by_address(inside.objects(target));
        let is_for_good = inside.is_on() && inside.header().lease == 0;
        let place = match (on && !is_for_good, place) {
            (true, place) => session
                .writing(|memory| inside.switch_on(memory, std::process::id(), place).map_err(|_| TdErr::NoCapab))?,
            (false, Some(place)) => session.writing(|memory| {
                inside.switch_off(memory, std::process::id(), place).map(|()| None).map_err(|_| TdErr::NoCapab)
            })?,
            (false, None) => None,
        };
        Ok((objects, place))
    })
}

/// The agent inside a program that ran already.
pub(crate) struct Inside {
    /// It leaves when this is dropped. `None` if it was at work for somebody else, and we could not join.
    injected: Option<Injected>,
    /// The process, looked at since: what was just loaded is in no older list of mappings.
    live: Live,
}

/// Puts the agent into a program that runs, or removes its hooks; what it has counted so far. Somebody who traces the program
/// keeps us from it, be it our own client: then the agent must be there already. An error says why it is not, if that
/// is known.
fn by_injection(session: &Session, pid: Pid, on: bool) -> Result<HashMap<RemoteAddr, Tracked>, Option<InjectError>> {
    let mut place = lock(&session.inside);
    if on && place.is_none() {
        let attached = inject::attach(pid, &inject::Options { single: true, ..inject::Options::default() });
        let live = Live::open(pid).map_err(|_| None)?;
        let injected = match attached {
            Ok(injected) => Some(injected),
            // Under a debugger nothing can be put in; what another tool, or the debugger itself, has put in is used.
            Err(error) => {
                let is_on = Agent::find(&live).is_ok_and(|inside| inside.is_some_and(|inside| inside.is_on()));
                if !is_on {
                    return Err(Some(error));
                }
                None
            }
        };
        *place = Some(Inside { injected, live });
    }
    // Off, and it never was on.
    let Some(inside) = place.as_ref() else { return Ok(HashMap::new()) };
    let found = Agent::find(&inside.live).ok().flatten().ok_or(None)?;
    let objects = by_address(found.objects(&inside.live));
    if !on && let Some(injected) = place.take().and_then(|inside| inside.injected) {
        // Slots are restored when this returns, unless the process has ended.
        let _ = injected.detach();
    }
    Ok(objects)
}

/// The agent is not in the program: the client is told why.
fn refused(why: Option<InjectError>) -> TdErr {
    if let Some(error) = why {
        crate::ps::say(&error.to_string());
    }
    TdErr::NoCapab
}

/// Looks at the agent inside the program, if there is one.
fn look<R>(session: &Session, act: impl FnOnce(&dyn Target, Agent) -> R) -> Td<Option<R>> {
    if let Some(inside) = &*lock(&session.inside) {
        return Ok(Agent::find(&inside.live).ok().flatten().map(|found| act(&inside.live, found)));
    }
    let live = session.live();
    session.looking(live.as_deref(), |target| Ok(Agent::find(target).ok().flatten().map(|found| act(target, found))))
}

/// The handle is about to go: whoever had the agent switched on by it wants it no longer.
pub(crate) fn end(session: &Session) {
    let Tracking::Since(_, Some(place)) = std::mem::take(&mut *lock(&session.tracking)) else { return };
    let _ = session.looking(session.live().as_deref(), |target| {
        if let Ok(Some(inside)) = Agent::find(target) {
            let _ = session
                .writing(|memory| inside.switch_off(memory, std::process::id(), place).map_err(|_| TdErr::NoCapab));
        }
        Ok(())
    });
}

fn by_address(objects: Vec<Tracked>) -> HashMap<RemoteAddr, Tracked> {
    objects.into_iter().map(|tracked| (tracked.address, tracked)).collect()
}

/// What was counted of an object, and whether counting goes on; `None` without an agent in the program.
fn counted(session: &Session, address: RemoteAddr) -> Td<Option<(Option<Tracked>, bool)>> {
    if let Tracking::Kept(kept) = &*lock(&session.tracking) {
        return Ok(Some((kept.get(&address).cloned(), false)));
    }
    let found = look(session, |target, inside| {
        let is_on = inside.is_on() && inside.header().drops == 0;
        (inside.object(target, address), is_on)
    })?;
    let Some((now, is_on)) = found else { return Ok(None) };
    Ok(Some(match &*lock(&session.tracking) {
        Tracking::Since(start, _) => (now.and_then(|now| now.since(start.get(&address))), is_on),
        _ => (now, is_on),
    }))
}

/// What the agent in the program has seen the object at `address` used as.
pub(crate) fn recorded_kind(session: &Session, address: RemoteAddr) -> Td<Option<(SyncKind, Evidence)>> {
    if let Tracking::Kept(kept) = &*lock(&session.tracking) {
        // Whether it was destroyed since then, nobody has seen.
        return Ok(kept.get(&address).map(|tracked| (tracked.kind, Evidence::Inferred)));
    }
    let found = look(session, |target, inside| inside.object(target, address))?.flatten();
    Ok(found.map(|tracked| (tracked.kind, Evidence::Recorded)))
}

/// Addresses of all objects that the agent in the program knows, used since this controller began to count.
pub(super) fn registered(session: &Session) -> Vec<RemoteAddr> {
    if let Tracking::Kept(_) = &*lock(&session.tracking) {
        return Vec::new();
    }
    let objects = look(session, |target, inside| inside.objects(target)).ok().flatten();
    let tracking = lock(&session.tracking);
    let is_known = |tracked: Tracked| {
        let address = tracked.address;
        let is_used = match &*tracking {
            Tracking::Since(start, _) => tracked.clone().since(start.get(&address)).is_some(),
            _ => true,
        };
        (type_and_size(tracked.kind).0 != 0 && is_used).then_some(address)
    };
    objects.unwrap_or_default().into_iter().filter_map(is_known).collect()
}

fn type_and_size(kind: SyncKind) -> (c_int, c_int) {
    match kind {
        SyncKind::Cond => (1, 48),
        SyncKind::Mutex => (2, 40),
        SyncKind::Semaphore => (3, 32),
        SyncKind::Rwlock => (4, 56),
        _ => (0, 0),
    }
}

/// Two counters side by side.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// The union of `td_syncstats_t`.
fn words(stats: &Counted) -> [u64; 16] {
    let mut words = [0; 16];
    let mut put = |values: &[u64]| words[..values.len()].copy_from_slice(values);
    match stats {
        Counted::Lock(s) => {
            let lock = u32::try_from(s.lock).unwrap_or(u32::MAX);
            put(&[pair(lock, s.sleep), s.sleep_time_ns, s.hold_time.total_ns, pair(s.try_, s.try_fail)]);
        }
        Counted::Cond(s) => put(&[
            pair(s.wait, s.timedwait),
            s.wait_sleep_time_ns,
            s.timedwait_sleep_time_ns,
            pair(s.timedwait_timeout, s.signal),
            pair(s.broadcast, 0),
        ]),
        Counted::Rwlock(s) => put(&[
            pair(s.read.lock, s.read.sleep),
            s.read.sleep_time_ns,
            pair(s.read.try_, s.read.try_fail),
            pair(s.write.lock, s.write.sleep),
            s.write.sleep_time_ns,
            s.hold_time.total_ns,
            pair(s.write.try_, s.write.try_fail),
        ]),
        Counted::Semaphore(s) => put(&[
            pair(s.wait, s.sleep),
            s.sleep_time_ns,
            pair(s.try_, s.try_fail),
            pair(s.post, s.max_count),
            pair(s.min_count, 0),
        ]),
        Counted::Barrier(_) => {}
    }
    words
}
