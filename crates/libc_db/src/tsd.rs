//! Thread-specific data.

use crate::abi::{KeyIterF, TdErr, ThrAgent, ThrHandle, code};
use crate::client::psaddr;
use crate::lists::Pass;
use crate::session::{look_error, thread};
use crate::sessions;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use threadglass::internals::glibc::tsd;

/// Calls back for every key in use.
///
/// # Safety
///
/// `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_tsd_iter(
    ta: *const ThrAgent,
    callback: Option<KeyIterF>,
    data: *mut c_void,
) -> c_int {
    code((|| {
        let callback = callback.ok_or(TdErr::Err)?;
        let session = sessions::enter(ta)?;
        let _stopped = session.stopping_for_all()?;
        let layout = session.layout()?.keys.ok_or(TdErr::NoCapab)?;
        let keys = session.inspect(|inspector| tsd::keys(inspector.memory, &layout).map_err(|_| TdErr::DbErr))?;
        let mut keys = Pass::new(&session, session.place(), keys);
        while let Some(key) = keys.next()? {
            let destructor = key.destructor.map_or(ptr::null_mut(), psaddr);
            // SAFETY: an address in the target, which the client gets as a function pointer because the
            // interface says so, and must not call; a nullable function pointer is pointer-sized.
            let destructor = unsafe {
                std::mem::transmute::<*mut c_void, Option<unsafe extern "C-unwind" fn(*mut c_void)>>(destructor)
            };
            // SAFETY: the client's function, called as its type says. It may call us, and may throw.
            if unsafe { callback(key.number, destructor, data) } != 0 {
                break;
            }
        }
        Ok(())
    })())
}

/// The value a thread has for a key.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_tsd(th: *const ThrHandle, key: c_uint, out: *mut *mut c_void) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(ptr::null_mut()) };
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let _stopped = session.stopping()?;
        let keys = session.layout()?.keys.ok_or(TdErr::NoCapab)?;
        let value = session.inspect(|inspector| {
            inspector.descriptor(id).map_err(look_error)?;
            let known = tsd::keys(inspector.memory, &keys).map_err(|_| TdErr::DbErr)?;
            let key = known.iter().find(|known| known.number == key).ok_or(TdErr::BadKey)?;
            tsd::values(inspector.memory, inspector.layout, id, &[*key]).map_err(|_| TdErr::DbErr)
        })?;
        let value = value.first().ok_or(TdErr::NoTsd)?;
        // SAFETY: as above.
        unsafe { out.write(psaddr(value.value)) };
        Ok(())
    })())
}
