//! Thread-local storage.

use crate::abi::{PsAddr, Td, TdErr, ThrHandle, code};
use crate::client::psaddr;
use crate::info::used_descriptor;
use crate::session::{Session, thread_or_early};
use std::ffi::{c_int, c_ulong};
use std::ptr;
use threadglass::internals::Inspector;
use threadglass::internals::glibc::tls::TlsError;
use threadglass::{Lwp, PthreadId, RemoteAddr};

fn tls_error(error: TlsError) -> TdErr {
    match error {
        TlsError::NoModule => TdErr::NoTls,
        TlsError::Deferred => TdErr::TlsDefer,
        TlsError::Undescribed => TdErr::NoCapab,
        TlsError::Read(_) => TdErr::DbErr,
    }
}

/// The thread a handle stands for. Before threads are set up, the main thread's register may lead to
/// its block already (static programs).
fn resolve(session: &Session, inspector: &Inspector<'_>, id: Option<PthreadId>) -> Td<PthreadId> {
    match id {
        Some(id) => used_descriptor(session, inspector, id).map(|thread| thread.id),
        // Once they are, every thread has a handle of its own.
        None if inspector.is_initialised().map_err(|_| TdErr::DbErr)? => Err(TdErr::BadTh),
        None => {
            let main = session.pid().map(Lwp).ok_or(TdErr::TlsDefer)?;
            let pointer = session.client().and_then(|client| client.thread_pointer(main)).ok_or(TdErr::TlsDefer)?;
            inspector.descriptor(PthreadId(pointer)).map(|thread| thread.id).map_err(|_| TdErr::TlsDefer)
        }
    }
}

/// Where a thread keeps the TLS block of a module.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_tlsbase(th: *const ThrHandle, modid: c_ulong, out: *mut PsAddr) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { locate(th, out, |_| Ok((modid, 0))) }
}

/// Where a thread keeps a variable: the object by its link map, the variable by its offset.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_tls_get_addr(
    th: *const ThrHandle,
    map: PsAddr,
    offset: usize,
    out: *mut PsAddr,
) -> c_int {
    let map = RemoteAddr(map.addr() as u64);
    // SAFETY: by the caller's promise.
    unsafe {
        locate(th, out, |inspector| {
            let tls = inspector.layout.tls.ok_or(TdErr::NoCapab)?;
            Ok((tls.module_of(inspector.memory, map).map_err(tls_error)?, offset as u64))
        })
    }
}

/// # Safety
///
/// `th` is NULL or points to a handle; `out` is NULL or writable.
unsafe fn locate(
    th: *const ThrHandle,
    out: *mut PsAddr,
    which: impl FnOnce(&Inspector<'_>) -> Td<(u64, u64)>,
) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(ptr::null_mut()) };
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread_or_early(th) }?;
        let _stopped = session.stopping()?;
        let addr = session.inspect(|inspector| {
            let tls = inspector.layout.tls.ok_or(TdErr::NoCapab)?;
            let id = resolve(&session, inspector, id)?;
            let (modid, offset) = which(inspector)?;
            let block = tls.block(inspector.memory, id, modid).map_err(tls_error)?;
            Ok(block.offset(offset))
        })?;
        // SAFETY: as above.
        unsafe { out.write(psaddr(addr)) };
        Ok(())
    })())
}
