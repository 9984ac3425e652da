//! From objects to the threads that wait for them, and from threads to what they hold and wait for.

use super::info::{is_owner, read_now};
use super::object;
use crate::abi::{SyncHandle, SyncIterF, Td, TdErr, ThrHandle, ThrIterF, code};
use crate::lists::Pass;
use crate::picture::Depth;
use crate::session::{Session, Who, look_error, thread_or_task};
use std::ffi::{c_int, c_void};
use threadglass::internals::FutexWait;
use threadglass::look::TaskScope;
use threadglass::model::{Holder, HolderStatus, SyncObject};
use threadglass::{Lwp, PthreadId, RemoteAddr};

/// Calls back for every thread that waits for a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle; `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_waiters(
    sh: *const SyncHandle,
    callback: Option<ThrIterF>,
    data: *mut c_void,
) -> c_int {
    code((|| {
        let callback = callback.ok_or(TdErr::Err)?;
        // SAFETY: by the caller's promise.
        let (session, address) = unsafe { object(sh) }?;
        let _stopped = session.stopping_for_all()?;
        if session.shows_tasks() {
            let waiting = session.recent_tasks(TaskScope::Held)?.waiters(address);
            let mut waiters = Pass::new(&session, session.place(), waiting);
            while let Some(id) = waiters.next()? {
                let handle = session.task_handle(id);
                // SAFETY: the client's function, called as its type says. It may call us, and may throw.
                if unsafe { callback(&raw const handle, data) } != 0 {
                    break;
                }
            }
            return Ok(());
        }
        let mut waiters = Pass::new(&session, session.place(), waiters(&session, address)?);
        while let Some(id) = waiters.next()? {
            let handle = session.handle(id);
            // SAFETY: the client's function, called as its type says. It may call us, and may throw.
            if unsafe { callback(&raw const handle, data) } != 0 {
                break;
            }
        }
        Ok(())
    })())
}

fn waiters(session: &Session, address: RemoteAddr) -> Td<Vec<PthreadId>> {
    let (picture, _) = read_now(session, address)?;
    let waiters = picture.object(address).map_or(&[][..], |object| &object.waiters);
    let here = waiters.iter().filter(|waiter| waiter.pid.is_none());
    Ok(here.filter_map(|waiter| waiter.thread).collect())
}

/// Calls back for every lock that a thread owns, as far as they are found.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_lockowner(
    th: *const ThrHandle,
    callback: Option<SyncIterF>,
    data: *mut c_void,
) -> c_int {
    code((|| {
        let callback = callback.ok_or(TdErr::Err)?;
        // SAFETY: by the caller's promise.
        let (session, who) = unsafe { thread_or_task(th) }?;
        let _stopped = session.stopping_for_all()?;
        let owned = match who {
            Who::Early => return Err(TdErr::BadTh),
            Who::Task(id) => session.task_in(id, TaskScope::Held)?.0.held_by(id),
            Who::Thread(id) => {
                let lwp = session.inspect(|inspector| {
                    inspector.descriptor(id).map(|thread| inspector.lwp_of(&thread)).map_err(look_error)
                })?;
                // Whoever has ended holds nothing, whatever it left locked.
                let Some(lwp) = lwp else { return Ok(()) };
                owned(&session, id, lwp)?
            }
        };
        let mut owned = Pass::new(&session, session.place(), owned);
        while let Some(address) = owned.next()? {
            let handle = session.sync_handle(address);
            // SAFETY: the client's function, called as its type says. It may call us, and may throw.
            if unsafe { callback(&raw const handle, data) } != 0 {
                break;
            }
        }
        Ok(())
    })())
}

fn owned(session: &Session, id: PthreadId, lwp: Lwp) -> Td<Vec<RemoteAddr>> {
    let (mut picture, new) = session.recent_picture(Depth::All)?;
    // A thread that slept all the time has taken nothing since.
    if !new && !picture.looking(session, |target| Ok(picture.have_not_moved(target, &[lwp])))? {
        picture = session.new_picture(Depth::All)?;
    }
    let owns = |object: &SyncObject| {
        let is_mine = |holder: &Holder| is_owner(object.kind, holder) && holder.thread == Some(id);
        object.holders.iter().any(|holder| is_mine(holder) && holder.status == HolderStatus::Alive)
    };
    let held = picture.objects().filter(|object| owns(object)).map(|object| object.address);
    Ok(held.collect())
}

/// The object a thread sleeps on.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_sleepinfo(th: *const ThrHandle, out: *mut SyncHandle) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so a writable structure of which all-zero bytes are a valid value.
        unsafe { out.write_bytes(0, 1) };
        // SAFETY: by the caller's promise.
        let (session, who) = unsafe { thread_or_task(th) }?;
        let address = match who {
            Who::Early => return Err(TdErr::BadTh),
            Who::Task(id) => session.task_in(id, TaskScope::Held)?.0.wait_of(id),
            Who::Thread(id) => {
                let lwp = session.inspect(|inspector| {
                    let thread = inspector.descriptor(id).map_err(look_error)?;
                    inspector.lwp_of(&thread).ok_or(TdErr::Err)
                })?;
                slept_on(&session, lwp)?
            }
        };
        let address = address.ok_or(TdErr::Err)?;
        // SAFETY: as above.
        unsafe { out.write(session.sync_handle(address)) };
        Ok(())
    })())
}

/// What a thread waits for.
fn slept_on(session: &Session, lwp: Lwp) -> Td<Option<RemoteAddr>> {
    let live = session.live();
    let now = session.looking(live.as_deref(), |target| Ok(target.facts(&[lwp]).pop().flatten()))?;
    // Whoever is asleep in another call, or in none, waits for no object.
    if now.as_ref().and_then(|facts| FutexWait::of(facts.syscall.as_ref()?)).is_none() {
        return Ok(None);
    }
    let (picture, new) = session.recent_picture(Depth::Waits)?;
    if new || picture.has_not_moved(lwp, now.as_ref()) {
        return Ok(picture.wait_of(lwp));
    }
    Ok(session.new_picture(Depth::Waits)?.wait_of(lwp))
}
