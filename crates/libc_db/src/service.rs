//! The target as the client shows it: through its `ps_*` routines, on the calling thread only.

use crate::abi::{PsAddr, PsProc, Td, TdErr};
use crate::ps::{LwpId, PS_NOFREGS, PS_NOSYM, PS_NOXREGS, PS_OK, imports};
use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::ptr;
use threadglass::control::RegisterSet;
use threadglass::target::{GeneralRegisters, Memory, MemoryWrite, ReadError, ReadErrorKind, Symbols};
use threadglass::{Lwp, RemoteAddr};

/// A client's process handle, for the time of one call.
#[derive(Clone, Copy)]
pub(crate) struct Service {
    ph: *mut PsProc,
}

/// The object glibc's own library names when it asks for symbols: debuggers either ignore it or
/// accept it for whatever libc has.
const OBJECT: &std::ffi::CStr = c"libpthread.so.0";

/// Index by which ps_get_thread_area names the FS base on x86-64.
const FS: i32 = 25;

pub(crate) fn psaddr(addr: RemoteAddr) -> PsAddr {
    ptr::without_provenance_mut(addr.0 as usize)
}

impl Service {
    /// For the handle `ph`, which the client keeps valid while it calls us.
    pub(crate) fn new(ph: *mut PsProc) -> Self {
        Self { ph }
    }

    /// The pid the client gives, if it does.
    pub(crate) fn pid(self) -> Option<i32> {
        let getpid = imports().getpid?;
        // SAFETY: `ph` is the handle that the client passed to td_ta_new and keeps valid.
        Some(unsafe { getpid(self.ph) })
    }

    /// The data model, if the client tells: `Err` when asking failed.
    pub(crate) fn is_lp64(self) -> Result<bool, ()> {
        /// PR_MODEL_LP64 of the Solaris headers.
        const LP64: i32 = 2;
        let Some(pdmodel) = imports().pdmodel else { return Ok(true) };
        let mut model = 0;
        // SAFETY: as above; `model` is a live int.
        match unsafe { pdmodel(self.ph, &raw mut model) } {
            PS_OK => Ok(model == LP64),
            _ => Err(()),
        }
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
        self.general_registers(lwp).map(|registers| registers.thread_pointer())
    }

    /// The general registers of an LWP.
    pub(crate) fn general_registers(self, lwp: Lwp) -> Option<GeneralRegisters> {
        GeneralRegisters::from_bytes(&self.registers(lwp, RegisterSet::General).ok()?)
    }

    /// Registers of an LWP, or what the client says instead.
    pub(crate) fn registers(self, lwp: Lwp, set: RegisterSet) -> Td<Vec<u8>> {
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

impl Memory for Service {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let len = buf.len();
        let failed = ReadError { addr, len, kind: ReadErrorKind::Unmapped };
        if len == 0 {
            return Ok(0);
        }
        let read = imports().pdread.ok_or(failed)?;
        // SAFETY: `ph` is valid and `buf` is a live slice of `len` bytes.
        match unsafe { read(self.ph, psaddr(addr), buf.as_mut_ptr().cast(), len) } {
            PS_OK => Ok(len),
            _ => Err(failed),
        }
    }
}

impl MemoryWrite for Service {
    fn write_at(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), ReadError> {
        let failed = ReadError { addr, len: bytes.len(), kind: ReadErrorKind::Denied };
        let write = imports().pdwrite.ok_or(failed)?;
        // SAFETY: `ph` is valid and `bytes` is a live slice, which the client only reads.
        match unsafe { write(self.ph, psaddr(addr), bytes.as_ptr().cast(), bytes.len()) } {
            PS_OK => Ok(()),
            _ => Err(failed),
        }
    }
}

impl Service {
    /// The address of a symbol, `Ok(None)` when there is none, `Err` when asking failed.
    fn look_up(self, name: &str) -> Result<Option<RemoteAddr>, ()> {
        let (Some(lookup), Ok(name)) = (imports().pglobal_lookup, CString::new(name)) else { return Ok(None) };
        let mut addr: PsAddr = ptr::null_mut();
        // SAFETY: `ph` is valid; both names end in NUL and live through the call; `addr` is a live
        // pointer-sized local.
        match unsafe { lookup(self.ph, OBJECT.as_ptr(), name.as_ptr(), &raw mut addr) } {
            PS_OK => Ok((!addr.is_null()).then(|| RemoteAddr(addr.addr() as u64))),
            PS_NOSYM => Ok(None),
            _ => Err(()),
        }
    }
}

impl Symbols for Service {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.look_up(name).ok().flatten()
    }
}

/// A client's process that remembers whether one of its routines failed. What is learned once and kept
/// must not be learned from half an answer.
pub(crate) struct Watched {
    service: Service,
    reads_failed: Cell<bool>,
    lookups_failed: Cell<bool>,
}

impl Watched {
    pub(crate) fn new(service: Service) -> Self {
        Self { service, reads_failed: Cell::new(false), lookups_failed: Cell::new(false) }
    }

    /// Whether memory could not be read.
    pub(crate) fn reads_failed(&self) -> bool {
        self.reads_failed.get()
    }

    /// Whether a symbol could not be looked up. Some clients say so of symbols that do not exist.
    pub(crate) fn lookups_failed(&self) -> bool {
        self.lookups_failed.get()
    }
}

impl Memory for Watched {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        self.service.read_at(addr, buf).inspect_err(|_| self.reads_failed.set(true))
    }
}

impl Symbols for Watched {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.service.look_up(name).unwrap_or_else(|()| {
            self.lookups_failed.set(true);
            None
        })
    }
}
