//! td_sync_setstate.

use super::object;
use crate::abi::{SyncHandle, TdErr, code};
use std::ffi::c_int;

/// Forces the state of a synchronization object: still to come.
///
/// # Safety
///
/// `sh` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_sync_setstate(sh: *const SyncHandle, _value: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    code(unsafe { object(sh) }.and(Err(TdErr::NoCapab)))
}
