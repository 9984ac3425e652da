//! A client's `ps_*` routines for one process, which are called on the calling thread only.

use crate::abi::{PsAddr, PsProc, Td, TdErr};
use crate::ps::{LwpId, PS_NOFREGS, PS_NOSYM, PS_NOXREGS, PS_OK, imports};
use std::ffi::{CString, c_int};
use std::ptr;
use threadglass::act::RegisterSet;
use threadglass::target::{GeneralRegisters, ProcService, RoutineFailed};
use threadglass::{Lwp, Pid, RemoteAddr};

/// A client's process handle, for the time of one call.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    ph: *mut PsProc,
}

// SAFETY: the pointer is only handed back to the client's routines, on the thread that made the call: `Service` calls
// them on no other.
unsafe impl Sync for Client {}

/// The object glibc's own library names when it asks for symbols: debuggers either ignore it or
/// accept it for whatever libc has.
const OBJECT: &std::ffi::CStr = c"libpthread.so.0";

/// Index by which ps_get_thread_area names the FS base on x86-64.
const FS: i32 = 25;

pub(crate) fn psaddr(addr: RemoteAddr) -> PsAddr {
    ptr::without_provenance_mut(addr.0 as usize)
}

impl Client {
    /// For the handle `ph`, which the client keeps valid while it calls us.
    pub(crate) fn new(ph: *mut PsProc) -> Self {
        Self { ph }
    }

    /// The thread pointer (FS base) of an LWP: asked for directly, or taken from its registers.
    pub(crate) fn thread_pointer(self, lwp: Lwp) -> Option<RemoteAddr> {
        if let Some(area) = imports().get_thread_area {
            let mut base: PsAddr = ptr::null_mut();
            // SAFETY: `ph` is valid, `base` is a live pointer-sized local.
            if unsafe { area(self.ph, lwp.0, FS, &raw mut base) } == PS_OK {
                return Some(RemoteAddr(base.addr() as u64));
            }
        }
        ProcService::registers(&self, lwp).ok().map(|registers| registers.thread_pointer())
    }

    /// Registers of an LWP, or what the client says instead.
    pub(crate) fn register_bytes(self, lwp: Lwp, set: RegisterSet) -> Td<Vec<u8>> {
        let (routine, size) = match set {
            RegisterSet::General => (imports().lgetregs, crate::abi::GREGS_SIZE),
            RegisterSet::Float => (imports().lgetfpregs, crate::abi::FPREGS_SIZE),
            RegisterSet::Extended => return Err(TdErr::NoXregs),
        };
        let routine = routine.ok_or(TdErr::DbErr)?;
        // Aligned for the client, which fills it as an array of longs.
        let mut words = vec![0u64; size / 8];
        // SAFETY: `ph` is valid and `words` has the size of the register set.
        let rc = unsafe { routine(self.ph, lwp.0 as LwpId, words.as_mut_ptr().cast()) };
        registers_answer(rc)?;
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Whether the client offers to stop the process around a call.
    pub(crate) fn can_stop(self) -> bool {
        imports().pstop.is_some() && imports().pcontinue.is_some()
    }

    /// Stops the process, and whether that worked; `None` if the client does not offer it.
    pub(crate) fn stop(self) -> Option<bool> {
        let (stop, _) = imports().pstop.zip(imports().pcontinue)?;
        // SAFETY: `ph` is valid.
        Some(unsafe { stop(self.ph) } == PS_OK)
    }

    /// Undoes [`Self::stop`].
    pub(crate) fn go_on(self) {
        if let Some(go_on) = imports().pcontinue {
            // SAFETY: `ph` is valid. Continuing is advisory; its result does not matter.
            unsafe { go_on(self.ph) };
        }
    }
}

/// What a client's answer to a call about registers means.
pub(crate) fn registers_answer(rc: c_int) -> Td {
    match rc {
        PS_OK => Ok(()),
        PS_NOFREGS => Err(TdErr::NoFpregs),
        PS_NOXREGS => Err(TdErr::NoXregs),
        _ => Err(TdErr::DbErr),
    }
}

impl ProcService for Client {
    fn pid(&self) -> Option<Pid> {
        let getpid = imports().getpid?;
        // SAFETY: `ph` is the handle that the client passed to td_ta_new and keeps valid.
        Some(Pid(unsafe { getpid(self.ph) }))
    }

    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), RoutineFailed> {
        let read = imports().pdread.ok_or(RoutineFailed)?;
        // SAFETY: `ph` is valid and `buf` is a live slice of that length.
        is_ok(unsafe { read(self.ph, psaddr(addr), buf.as_mut_ptr().cast(), buf.len()) })
    }

    fn write(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), RoutineFailed> {
        let write = imports().pdwrite.ok_or(RoutineFailed)?;
        // SAFETY: `ph` is valid and `bytes` is a live slice, which the client only reads.
        is_ok(unsafe { write(self.ph, psaddr(addr), bytes.as_ptr().cast(), bytes.len()) })
    }

    fn look_up(&self, name: &str) -> Result<Option<RemoteAddr>, RoutineFailed> {
        let (Some(lookup), Ok(name)) = (imports().pglobal_lookup, CString::new(name)) else { return Ok(None) };
        let mut addr: PsAddr = ptr::null_mut();
        // SAFETY: `ph` is valid; both names end in NUL and live through the call; `addr` is a live
        // pointer-sized local.
        match unsafe { lookup(self.ph, OBJECT.as_ptr(), name.as_ptr(), &raw mut addr) } {
            PS_OK => Ok((!addr.is_null()).then(|| RemoteAddr(addr.addr() as u64))),
            PS_NOSYM => Ok(None),
            _ => Err(RoutineFailed),
        }
    }

    fn registers(&self, lwp: Lwp) -> Result<GeneralRegisters, RoutineFailed> {
        let routine = imports().lgetregs.ok_or(RoutineFailed)?;
        let mut registers = GeneralRegisters([0; _]);
        // SAFETY: `ph` is valid and the registers are a `prgregset_t`.
        is_ok(unsafe { routine(self.ph, lwp.0 as LwpId, registers.0.as_mut_ptr().cast()) })?;
        Ok(registers)
    }
}

fn is_ok(rc: c_int) -> Result<(), RoutineFailed> {
    if rc == PS_OK { Ok(()) } else { Err(RoutineFailed) }
}
