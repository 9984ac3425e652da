//! Synchronization objects: declared, and answered with TD_NOCAPAB after the
//! checks that hold for every call, until they are implemented.

use crate::abi::{PsAddr, SyncHandle, SyncIterF, Td, TdErr, ThrAgent, ThrHandle, ThrIterF, code};
use crate::agent::{look_error, thread};
use crate::agents;
use std::ffi::{c_int, c_void};

fn on_agent(ta: *const ThrAgent) -> Td {
    agents::enter(ta)?;
    Err(TdErr::NoCapab)
}

/// # Safety
///
/// `sh` is NULL or points to a handle.
unsafe fn on_object(sh: *const SyncHandle) -> Td {
    if sh.is_null() {
        return Err(TdErr::BadSh);
    }
    // SAFETY: not NULL, so a handle by the caller's promise.
    let handle = unsafe { sh.read() };
    if handle.sh_unique.is_null() {
        return Err(TdErr::BadSh);
    }
    on_agent(handle.sh_ta_p)
}

/// # Safety
///
/// `th` is NULL or points to a handle.
unsafe fn on_thread(th: *const ThrHandle) -> Td {
    // SAFETY: by the caller's promise.
    let (agent, id) = unsafe { thread(th) }?;
    agent.inspect(|inspector| inspector.descriptor(id)).map_err(look_error)?;
    Err(TdErr::NoCapab)
}

fn required<T>(pointer: *const T) -> Td {
    if pointer.is_null() { Err(TdErr::Err) } else { Ok(()) }
}

/// Handle of the synchronization object at an address.
///
/// # Safety
///
/// `out` is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_map_addr2sync(ta: *const ThrAgent, _addr: PsAddr, out: *mut SyncHandle) -> c_int {
    code(if out.is_null() { Err(TdErr::BadSh) } else { on_agent(ta) })
}

/// Calls back for every known synchronization object.
///
/// # Safety
///
/// `callback` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_sync_iter(
    ta: *const ThrAgent,
    callback: Option<SyncIterF>,
    _data: *mut c_void,
) -> c_int {
    code(callback.ok_or(TdErr::Err).and_then(|_| on_agent(ta)))
}

/// Switches tracking of synchronization objects.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_sync_tracking_enable(ta: *const ThrAgent, _on: c_int) -> c_int {
    code(on_agent(ta))
}

/// State of a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_get_info(sh: *const SyncHandle, out: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    code(required(out).and_then(|()| unsafe { on_object(sh) }))
}

/// Statistics of a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_get_stats(sh: *const SyncHandle, out: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    code(required(out).and_then(|()| unsafe { on_object(sh) }))
}

/// Forces the state of a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_setstate(sh: *const SyncHandle, _value: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    code(unsafe { on_object(sh) })
}

/// Calls back for every thread that waits for a synchronization object.
///
/// # Safety
///
/// `sh` is NULL or points to a handle; `callback` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_waiters(
    sh: *const SyncHandle,
    callback: Option<ThrIterF>,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    code(callback.ok_or(TdErr::Err).and_then(|_| unsafe { on_object(sh) }))
}

/// Calls back for every lock that a thread owns.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `callback` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_lockowner(
    th: *const ThrHandle,
    callback: Option<SyncIterF>,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    code(callback.ok_or(TdErr::Err).and_then(|_| unsafe { on_thread(th) }))
}

/// The object a thread sleeps on.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_sleepinfo(th: *const ThrHandle, out: *mut SyncHandle) -> c_int {
    // SAFETY: by the caller's promise.
    code(required(out).and_then(|()| unsafe { on_thread(th) }))
}
