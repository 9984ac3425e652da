//! Handles of synchronization objects: by address, and of all that are known.

use super::info::is_of_tasks;
use super::{stats, type_of};
use crate::abi::{PsAddr, SyncHandle, SyncIterF, Td, TdErr, ThrAgent, code};
use crate::lists::Pass;
use crate::picture::Depth;
use crate::session::Session;
use crate::sessions;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use threadglass::RemoteAddr;
use threadglass::internals::{NoPlace, check_place};
use threadglass::look::TaskScope;
use threadglass::model::{SyncObject, SyncState};
use threadglass::target::Target;

/// Handle of the synchronization object at an address.
///
/// # Safety
///
/// `out` is NULL or points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_map_addr2sync(ta: *const ThrAgent, addr: PsAddr, out: *mut SyncHandle) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::BadSh);
        }
        if addr.is_null() {
            return Err(TdErr::Err);
        }
        let session = sessions::enter(ta)?;
        let address = RemoteAddr(addr.addr() as u64);
        if !may_be_object(&session, address)? {
            return Err(TdErr::BadSh);
        }
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(session.sync_handle(address)) };
        Ok(())
    })())
}

/// Whether a lock can be at `address`: in memory that can be written, and aligned.
fn may_be_object(session: &Session, address: RemoteAddr) -> Td<bool> {
    if !address.0.is_multiple_of(4) {
        // Locks of one byte exist, but say nothing of themselves: a waiter must have told of it.
        let (picture, _) = session.recent_picture(Depth::Waits)?;
        return Ok(picture.object(address).is_some());
    }
    if !session.has_memory(address) {
        return Ok(false);
    }
    if let Some(core) = session.core() {
        return Ok(is_place(core, address));
    }
    // Mappings come and go, so they are those of a recent look. Without any, what can be read must do.
    match session.live() {
        Some(_) => session.recent_picture(Depth::Waits)?.0.looking(session, |target| Ok(is_place(target, address))),
        None => Ok(true),
    }
}

/// What can be read but is in no list of mappings may be one.
fn is_place(target: &dyn Target, address: RemoteAddr) -> bool {
    matches!(check_place(target, address), Ok(()) | Err(NoPlace::Unmapped))
}

/// Calls back for every synchronization object that threads wait for or hold, as far as they are found, and for
/// those that the agent in the program has seen used.
///
/// # Safety
///
/// `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_sync_iter(
    ta: *const ThrAgent,
    callback: Option<SyncIterF>,
    data: *mut c_void,
) -> c_int {
    code((|| {
        let callback = callback.ok_or(TdErr::Err)?;
        let session = sessions::enter(ta)?;
        let _stopped = session.stopping_for_all()?;
        // The list is taken whole before the first callback, which may change what is in it.
        let mut addresses = Pass::new(&session, session.place(), known_objects(&session)?);
        while let Some(address) = addresses.next()? {
            let handle = session.sync_handle(address);
            // SAFETY: the client's function, called as its type says. It may call us, and may throw.
            if unsafe { callback(&raw const handle, data) } != 0 {
                break;
            }
        }
        Ok(())
    })())
}

/// The objects in use, and those that were seen used, in address order.
fn known_objects(session: &Session) -> Td<Vec<RemoteAddr>> {
    if session.shows_tasks() {
        let tasks = session.new_tasks(TaskScope::Held)?;
        // Channels have no type here, but are what most tasks wait for.
        let is_known = |object: &&SyncObject| type_of(object).is_some() || is_of_tasks(object);
        let is_used = |object: &&SyncObject| is_in_use(object) || !tasks.waiters(object.address).is_empty();
        let known = tasks.objects().filter(is_known).filter(is_used).map(|object| object.address);
        let mut addresses: BTreeSet<RemoteAddr> = known.collect();
        addresses.extend(stats::registered(session));
        return Ok(addresses.into_iter().collect());
    }
    let picture = session.new_picture(Depth::All)?;
    let known = picture.objects().filter(|object| type_of(object).is_some() && is_in_use(object));
    let mut addresses: BTreeSet<RemoteAddr> = known.map(|object| object.address).collect();
    addresses.extend(stats::registered(session));
    Ok(addresses.into_iter().collect())
}

/// Whether an object is waited for or held, or was held by somebody who died.
fn is_in_use(object: &SyncObject) -> bool {
    let is_left = matches!(object.state, SyncState::OwnerDied | SyncState::NotRecoverable);
    !object.waiters.is_empty() || !object.holders.is_empty() || object.state.is_held() || is_left
}
