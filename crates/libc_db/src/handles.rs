//! Ready-made process handles, for clients that have no `ps_*` of their own.

use crate::abi::{PsProc, Td, TdErr, code};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use threadglass::Pid;
use threadglass::target::Live;

/// A process behind a handle of ours.
pub(crate) struct OwnProcess {
    pub(crate) live: Live,
    released: AtomicBool,
}

impl OwnProcess {
    /// Whether `tg_release` has been called on its handle.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }
}

/// What a handle is: our process, or one that was released.
enum Handle {
    Open(Arc<OwnProcess>),
    Released,
}

static HANDLES: Mutex<Option<HashMap<usize, Handle>>> = Mutex::new(None);

fn handles() -> MutexGuard<'static, Option<HashMap<usize, Handle>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process of `ph` if that is a handle of ours: `None` for a client's own, an error for a
/// released one.
pub(crate) fn find(ph: *mut PsProc) -> Option<Td<Arc<OwnProcess>>> {
    match handles().as_ref()?.get(&ph.addr())? {
        Handle::Open(process) => Some(Ok(process.clone())),
        Handle::Released => Some(Err(TdErr::BadPh)),
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn remember(message: &str) {
    LAST_ERROR.set(CString::new(message.replace('\0', " ")).unwrap_or_default());
}

/// Makes a handle for live process `pid`.
///
/// # Safety
///
/// `out` is NULL or points to writable memory for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn tg_attach_pid(pid: c_int, out: *mut *mut PsProc) -> c_int {
    if out.is_null() {
        remember("tg_attach_pid: the result pointer is NULL");
        return TdErr::Err as c_int;
    }
    let ph = attach(pid);
    // SAFETY: not NULL, so writable by the caller's promise.
    unsafe { out.write(ph.unwrap_or(std::ptr::null_mut())) };
    code(ph.map(drop))
}

fn attach(pid: c_int) -> Td<*mut PsProc> {
    let live = Live::open(Pid(pid)).map_err(|error| {
        remember(&error.to_string());
        TdErr::Err
    })?;
    if let Some(denial) = live.denial() {
        remember(&format!("cannot look into process {pid}: {denial}"));
        return Err(TdErr::Err);
    }
    // The address of a small allocation that is never freed: no later handle can have the same, so a
    // released handle is known as such for ever.
    let ph: *mut PsProc = Box::into_raw(Box::new(0u64)).cast();
    let process = Arc::new(OwnProcess { live, released: AtomicBool::new(false) });
    handles().get_or_insert_default().insert(ph.addr(), Handle::Open(process));
    Ok(ph)
}

/// Opening core files comes with its own release; until then this says so.
///
/// # Safety
///
/// The arguments are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn tg_open_core(
    _core: *const c_char,
    _exe: *const c_char,
    out: *mut *mut PsProc,
) -> c_int {
    if !out.is_null() {
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(std::ptr::null_mut()) };
    }
    remember("tg_open_core: core files are not supported yet (use a debugger that loads this library)");
    TdErr::NoCapab as c_int
}

/// Ends a handle. Agents made with it answer TD_BADPH from then on, and the threads they suspended
/// go on.
///
/// # Safety
///
/// `ph` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn tg_release(ph: *mut PsProc) {
    let released = match handles().as_mut().and_then(|handles| handles.get_mut(&ph.addr())) {
        Some(handle) => std::mem::replace(handle, Handle::Released),
        None => return,
    };
    if let Handle::Open(process) = released {
        process.released.store(true, Ordering::Release);
        crate::agents::release_of(&process);
    }
}

/// Text of the last failure of a `tg_` function on this thread; empty if there was none. Valid until
/// the next one.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn tg_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}
