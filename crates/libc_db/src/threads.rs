//! From ids to thread handles.

use crate::abi::{Td, TdErr, ThrAgent, ThrHandle, code};
use crate::info::is_listed;
use crate::session::{Session, inner_of, look_error};
use crate::sessions;
use std::ffi::{c_int, c_ulong};
use threadglass::internals::Inspector;
use threadglass::{Lwp, PthreadId, RemoteAddr};

/// Handle of the thread with this `pthread_t`, or of the task with this number.
///
/// # Safety
///
/// `out` is NULL or points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_map_id2thr(ta: *const ThrAgent, id: c_ulong, out: *mut ThrHandle) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        if out.is_null() {
            return Err(TdErr::BadTh);
        }
        if session.shows_tasks() {
            let handle = session.task_handle(session.task_numbered(id)?);
            // SAFETY: not NULL, so writable by the caller's promise.
            unsafe { out.write(handle) };
            return Ok(());
        }
        let id = PthreadId(RemoteAddr(id));
        if id.0.is_null() {
            return Err(TdErr::NoThr);
        }
        let _stopped = session.stopping()?;
        if !is_listed(&session, id)? {
            return Err(TdErr::NoThr);
        }
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(session.handle(id)) };
        Ok(())
    })())
}

/// Handle of the thread, or the task, on this LWP.
///
/// # Safety
///
/// `out` is NULL or points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_map_lwp2thr(ta: *const ThrAgent, lwp: c_int, out: *mut ThrHandle) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        if out.is_null() {
            return Err(TdErr::BadTh);
        }
        let _stopped = session.stopping()?;
        let handle = match session.shows_tasks() {
            true => session.task_handle(session.task_on(Lwp(lwp))?),
            false => session.inspect(|inspector| find(&session, inspector, Lwp(lwp)))?,
        };
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(handle) };
        Ok(())
    })())
}

fn find(session: &Session, inspector: &Inspector<'_>, lwp: Lwp) -> Td<ThrHandle> {
    if !inspector.is_initialised().map_err(|_| TdErr::DbErr)? {
        // Debuggers ask for the main thread before it is set up, and take an error for a refusal.
        return if session.pid() == Some(lwp.0) { Ok(session.early_handle()) } else { Err(TdErr::Err) };
    }
    if lwp.0 <= 0 || session.is_elsewhere(lwp) {
        return Err(TdErr::NoThr);
    }
    // The thread register leads to the descriptor at once. Whoever shares that of another thread is that thread to a debugger.
    if let Some(id) = session.client().and_then(|client| client.thread_pointer(lwp)).map(PthreadId)
        && !id.0.is_null()
        && let Ok(descriptor) = inspector.descriptor_at(id)
    {
        session.note_borrower(&descriptor, lwp);
        return Ok(session.handle(id));
    }
    if inspector.target.is_some_and(|target| !target.has_thread(lwp)) {
        return Err(TdErr::NoThr);
    }
    let inner = inner_of(inspector.target, lwp);
    let threads = inspector.list().map_err(look_error)?;
    let found = threads.iter().find(|thread| thread.tid == inner.0 && thread.tid > 0);
    found.map(|thread| session.handle(thread.id)).ok_or(TdErr::NoThr)
}
