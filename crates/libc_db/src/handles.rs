//! Ready-made process handles, for clients that have no `ps_*` of their own.

use crate::abi::{PsProc, Td, TdErr, code};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use threadglass::Pid;
use threadglass::model::terminal::safe;
use threadglass::target::{Core, CoreFault, CoreOptions, Live, Target};

/// What a handle of ours stands for.
pub(crate) enum Subject {
    Live(Box<Live>),
    Core(Box<Core>),
}

/// A process or core behind a handle of ours.
pub(crate) struct OwnProcess {
    pub(crate) subject: Subject,
    released: AtomicBool,
    /// Sessions that are being made of it.
    beginnings: AtomicUsize,
    /// Whether this is a child, and another thread of its parent's was at work with it at the fork.
    lost: AtomicBool,
}

impl OwnProcess {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            released: AtomicBool::new(false),
            beginnings: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// Runs `make` while everybody can see that something is being made of it.
    pub(crate) fn beginning<R>(&self, make: impl FnOnce() -> R) -> R {
        // No foreign code runs: it comes to its end.
        self.beginnings.fetch_add(1, Ordering::AcqRel);
        let made = make();
        self.beginnings.fetch_sub(1, Ordering::AcqRel);
        made
    }

    /// Gives it up, in the child of a fork.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether it was given up.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// It, as what is looked at.
    pub(crate) fn target(&self) -> &dyn Target {
        match &self.subject {
            Subject::Live(live) => &**live,
            Subject::Core(core) => &**core,
        }
    }

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
        Handle::Open(process) if process.is_lost() => Some(Err(TdErr::BadPh)),
        Handle::Open(process) => Some(Ok(process.clone())),
        Handle::Released => Some(Err(TdErr::BadPh)),
    }
}

/// All handles, held still while the process forks.
pub(crate) struct HeldHandles(MutexGuard<'static, Option<HashMap<usize, Handle>>>);

impl HeldHandles {
    pub(crate) fn hold() -> Self {
        Self(handles())
    }

    /// In the child: gives up the handles of which another thread of the parent's was making a session.
    pub(crate) fn lose_those_in_use(&self) {
        for handle in self.0.iter().flat_map(HashMap::values) {
            if let Handle::Open(process) = handle
                && process.beginnings.load(Ordering::Acquire) > 0
            {
                process.lose();
            }
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps `message` for `tg_last_error`.
pub(crate) fn remember(message: &str) {
    LAST_ERROR.set(CString::new(safe(message)).unwrap_or_default());
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
    Ok(register(Subject::Live(Box::new(live))))
}

fn register(subject: Subject) -> *mut PsProc {
    // The address of a small allocation that is never freed: no later handle can have the same, so a
    // released handle is known as such for ever.
    let ph: *mut PsProc = Box::into_raw(Box::new(0u64)).cast();
    let process = Arc::new(OwnProcess::new(subject));
    handles().get_or_insert_default().insert(ph.addr(), Handle::Open(process));
    ph
}

/// Makes a handle for a core file. `exe` names the program if it is not where it was, or is NULL.
///
/// # Safety
///
/// `core` and `exe` are NULL or strings; `out` is NULL or points to writable memory for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn tg_open_core(core: *const c_char, exe: *const c_char, out: *mut *mut PsProc) -> c_int {
    if out.is_null() || core.is_null() {
        remember("tg_open_core: the file name or the result pointer is NULL");
        return TdErr::Err as c_int;
    }
    // SAFETY: a string, by the caller's promise.
    let path = |text: *const c_char| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()));
    let options = CoreOptions { exe: (!exe.is_null()).then(|| path(exe)), ..CoreOptions::default() };
    let ph = Core::open(&path(core), options).map(|core| register(Subject::Core(Box::new(core)))).map_err(|error| {
        remember(&error.to_string());
        match error.fault {
            CoreFault::WrongMachine(_) => TdErr::NoCapab,
            _ => TdErr::Err,
        }
    });
    // SAFETY: not NULL, so writable by the caller's promise.
    unsafe { out.write(ph.unwrap_or(std::ptr::null_mut())) };
    code(ph.map(drop))
}

/// Ends a handle. Sessions made with it answer TD_BADPH from then on, and the threads they suspended
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
        crate::sessions::release_of(&process);
        if process.is_lost() {
            // Nothing of it can be touched.
            std::mem::forget(process);
        }
    }
}

/// Text of the last failure of a `tg_` function on this thread; empty if there was none. Valid until
/// the next one.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn tg_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}
