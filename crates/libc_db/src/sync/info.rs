//! td_sync_get_info.

use super::{object, type_of};
use crate::abi::{SyncHandle, SyncInfo, Td, TdErr, ThrHandle, code};
use crate::client::psaddr;
use crate::picture::{Depth, Picture};
use crate::session::Session;
use crate::tasks::{TaskId, TaskPicture};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use threadglass::internals::Reread;
use threadglass::look::TaskScope;
use threadglass::model::{Detail, Family, Holder, HolderStatus, SyncKind, SyncObject, SyncState};
use threadglass::{Lwp, RemoteAddr};

/// LOCK_OWNERDEAD and LOCK_NOTRECOVERABLE.
const OWNER_DEAD: u8 = 1;
const NOT_RECOVERABLE: u8 = 2;
/// USYNC_PROCESS.
const SHARED: u32 = 1;

/// The handle of no thread.
const NOBODY: ThrHandle = ThrHandle { th_ta_p: ptr::null_mut(), th_unique: ptr::null_mut() };

/// State of a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle; `out` is NULL or points to a writable `td_syncinfo_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_get_info(sh: *const SyncHandle, out: *mut SyncInfo) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so a writable structure of which all-zero bytes are a valid value.
        unsafe { out.write_bytes(0, 1) };
        // SAFETY: by the caller's promise.
        let info = unsafe { info_of(sh) }?;
        // SAFETY: as above.
        unsafe { out.write(info) };
        Ok(())
    })())
}

/// # Safety
///
/// `sh` is NULL or points to a handle.
pub(super) unsafe fn info_of(sh: *const SyncHandle) -> Td<SyncInfo> {
    // SAFETY: by the caller's promise.
    let (session, address) = unsafe { object(sh) }?;
    let _stopped = session.stopping()?;
    let tasks = if session.shows_tasks() { Some(session.recent_tasks(TaskScope::Held)?) } else { None };
    let object = tasks.as_ref().and_then(|tasks| tasks.object(address)).filter(|object| is_of_tasks(object));
    let (is_waited, now) = match object {
        // The look has read all that there is to read of it.
        Some(object) => {
            (false, Some(Reread { object: object.clone(), marked: false, is_plausible: true, raw: Vec::new() }))
        }
        None => {
            let (picture, now) = read_now(&session, address)?;
            (picture.object(address).is_some_and(|object| !object.waiters.is_empty()), now)
        }
    };
    let is_waited = is_waited || tasks.as_ref().is_some_and(|tasks| !tasks.waiters(address).is_empty());
    let mut info = empty(&session, address);
    info.si_has_waiters = u8::from(is_waited);
    if let Some(now) = now.filter(|now| now.is_plausible) {
        fill(&session, &mut info, &now, is_waited);
        if let Some(tasks) = tasks {
            info.si_owner = owning_task(&tasks, &now.object).map_or(NOBODY, |task| session.task_handle(task));
        }
    }
    Ok(info)
}

/// Whether only tasks use `object`, not threads.
pub(super) fn is_of_tasks(object: &SyncObject) -> bool {
    matches!(object.family, Family::Go | Family::Tokio) || !object.waiting_tasks.is_empty()
}

/// The task that has a mutex, or may write what a rwlock protects. Locks of Go do not tell; who has one is inferred from the
/// code of the tasks.
fn owning_task(tasks: &TaskPicture, object: &SyncObject) -> Option<TaskId> {
    let may_be_owned = object.kind == SyncKind::Mutex || object.state == SyncState::WriteLocked;
    match tasks.holders(object.address).as_slice() {
        [owner] if may_be_owned => Some(*owner),
        _ => None,
    }
}

/// What the object at `address` says now, and a look that is true of its waiters.
pub(super) fn read_now(session: &Session, address: RemoteAddr) -> Td<(Arc<Picture>, Option<Reread>)> {
    let (mut picture, mut new) = session.recent_picture(Depth::Waits)?;
    if picture.object(address).is_none() && picture.depth() < Depth::All {
        (picture, new) = session.recent_picture(Depth::All)?;
    }
    let (now, stands) = picture.looking(session, |target| {
        let now = picture.read(session, target, address)?;
        let waiters = picture.object(address).map_or(&[][..], |object| &object.waiters);
        // Of those in other processes nothing is known but the look.
        let is_all_here = waiters.iter().all(|waiter| waiter.pid.is_none());
        let lwps: Vec<Lwp> = waiters.iter().map(|waiter| waiter.lwp).collect();
        // Whoever goes to sleep on a pthread object marks it first.
        let is_unmarked = now.as_ref().is_some_and(|now| !now.marked && now.object.family == Family::Pthread);
        let stands = match lwps.is_empty() {
            true => is_unmarked && now.as_ref().is_some_and(|now| type_of(&now.object).is_some()),
            false => is_all_here && picture.have_not_moved(target, &lwps),
        };
        Ok((now, stands))
    })?;
    if new || stands {
        return Ok((picture, now));
    }
    let picture = session.new_picture(picture.depth())?;
    let now = picture.looking(session, |target| picture.read(session, target, address))?;
    Ok((picture, now))
}

fn empty(session: &Session, address: RemoteAddr) -> SyncInfo {
    SyncInfo {
        si_ta_p: session.sync_handle(address).sh_ta_p,
        si_sv_addr: psaddr(address),
        si_type: 0,
        si_shared_type: 0,
        si_flags: [0; 4],
        si_ownerpid: 0,
        si_state: 0,
        si_size: 0,
        si_has_waiters: 0,
        si_is_wlock: 0,
        si_rcount: 0,
        si_prioceiling: 0,
        padding: 0,
        si_owner: NOBODY,
        si_data: ptr::null_mut(),
    }
}

fn fill(session: &Session, info: &mut SyncInfo, now: &Reread, is_waited: bool) {
    let object = &now.object;
    let Some(kind) = type_of(object) else { return };
    info.si_type = kind;
    info.si_size = object.size.and_then(|size| c_int::try_from(size).ok()).unwrap_or(0);
    let holder = object.holders.iter().find(|holder| is_owner(object.kind, holder));
    // To libc every robust mutex is shared.
    let is_shared = object.shared.unwrap_or(matches!(object.detail, Detail::Mutex { robust: true, .. }));
    info.si_shared_type = if is_shared { SHARED } else { 0 };
    // Within the process every thread was looked at. What other processes do, only the object can say.
    info.si_has_waiters = u8::from(is_waited || now.marked && is_shared);
    info.si_flags[0] = match object.state {
        SyncState::OwnerDied | SyncState::Inconsistent => OWNER_DEAD,
        SyncState::NotRecoverable => NOT_RECOVERABLE,
        _ => 0,
    };
    match object.kind {
        SyncKind::Mutex => info.si_state = c_int::from(object.state.is_held()),
        SyncKind::Rwlock => {
            let is_written = object.state == SyncState::WriteLocked;
            info.si_is_wlock = u8::from(is_written);
            if is_written {
                info.si_state = -1;
            }
        }
        _ => {}
    }
    match object.detail {
        Detail::Mutex { recursion, ceiling, .. } => {
            info.si_rcount = u8::try_from(recursion).unwrap_or(u8::MAX);
            info.si_prioceiling = ceiling.unwrap_or(0);
        }
        Detail::Rwlock { readers, .. } => {
            if info.si_is_wlock == 0 {
                info.si_state = c_int::try_from(readers).unwrap_or(c_int::MAX);
            }
            if object.family == Family::Pthread {
                let word = now.raw.get(..4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
                info.si_data = psaddr(RemoteAddr(u64::from(word)));
            }
        }
        Detail::Semaphore { count } => {
            info.si_state = c_int::try_from(count).unwrap_or(c_int::MAX);
            info.si_data = psaddr(RemoteAddr(u64::from(count)));
        }
        _ => {}
    }
    if let Some(holder) = holder {
        let here = holder.pid.is_none() && holder.status == HolderStatus::Alive;
        if let (true, Some(id)) = (here, holder.thread) {
            info.si_owner = session.handle(id);
        }
        if is_shared {
            let own = || session.pid().filter(|_| here);
            info.si_ownerpid = holder.pid.map(|pid| pid.0).or_else(own).unwrap_or(0);
        }
    }
}

/// Whether a holder owns the object, as the object itself says: the holder of a mutex or of a write lock.
pub(super) fn is_owner(kind: SyncKind, holder: &Holder) -> bool {
    use threadglass::model::{Evidence, Side};
    let is_sole = match kind {
        SyncKind::Mutex => true,
        SyncKind::Rwlock => holder.side == Some(Side::Write),
        _ => false,
    };
    is_sole && matches!(holder.evidence, Evidence::Recorded | Evidence::Derived)
}
