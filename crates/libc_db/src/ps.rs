//! The routines of `<proc_service.h>` that the client defines.
//!
//! All of them are *weak* imports. gdb exports nine of them and loads us with every symbol to be
//! resolved at once, so one strong reference more would make it refuse the library. And they must be
//! imports, not looked up by name: only a symbol that a shared library refers to is exported from the
//! program that is linked with it. Rust has no stable weak imports, the assembler does.

use crate::abi::{PsAddr, PsProc};
use std::arch::global_asm;
use std::ffi::{c_char, c_int, c_void};
use threadglass::model::terminal::safe;

/// `lwpid_t`.
pub(crate) type LwpId = c_int;
type Regs = unsafe extern "C-unwind" fn(*mut PsProc, LwpId, *mut c_void) -> c_int;
type SetRegs = unsafe extern "C-unwind" fn(*mut PsProc, LwpId, *const c_void) -> c_int;
type OnLwp = unsafe extern "C-unwind" fn(*mut PsProc, LwpId) -> c_int;
type OnProc = unsafe extern "C-unwind" fn(*mut PsProc) -> c_int;

/// The client's routines; `None` for one that it does not define.
#[repr(C)]
pub(crate) struct Imports {
    pub(crate) pglobal_lookup:
        Option<unsafe extern "C-unwind" fn(*mut PsProc, *const c_char, *const c_char, *mut PsAddr) -> c_int>,
    pub(crate) pdread: Option<unsafe extern "C-unwind" fn(*mut PsProc, PsAddr, *mut c_void, usize) -> c_int>,
    pub(crate) pdwrite: Option<unsafe extern "C-unwind" fn(*mut PsProc, PsAddr, *const c_void, usize) -> c_int>,
    pub(crate) lgetregs: Option<Regs>,
    pub(crate) lsetregs: Option<SetRegs>,
    pub(crate) lgetfpregs: Option<Regs>,
    pub(crate) lsetfpregs: Option<SetRegs>,
    pub(crate) getpid: Option<unsafe extern "C-unwind" fn(*mut PsProc) -> c_int>,
    pub(crate) get_thread_area: Option<unsafe extern "C-unwind" fn(*mut PsProc, LwpId, c_int, *mut PsAddr) -> c_int>,
    pub(crate) lgetxregsize: Option<unsafe extern "C-unwind" fn(*mut PsProc, LwpId, *mut c_int) -> c_int>,
    pub(crate) lgetxregs: Option<Regs>,
    pub(crate) lsetxregs: Option<SetRegs>,
    pub(crate) pstop: Option<OnProc>,
    pub(crate) pcontinue: Option<OnProc>,
    pub(crate) lstop: Option<OnLwp>,
    pub(crate) lcontinue: Option<OnLwp>,
    pub(crate) plog: Option<unsafe extern "C-unwind" fn(*const c_char, ...)>,
}

// One pointer for each field of `Imports`, in the same order.
global_asm!(
    ".weak ps_pglobal_lookup",
    ".weak ps_pdread",
    ".weak ps_pdwrite",
    ".weak ps_lgetregs",
    ".weak ps_lsetregs",
    ".weak ps_lgetfpregs",
    ".weak ps_lsetfpregs",
    ".weak ps_getpid",
    ".weak ps_get_thread_area",
    ".weak ps_lgetxregsize",
    ".weak ps_lgetxregs",
    ".weak ps_lsetxregs",
    ".weak ps_pstop",
    ".weak ps_pcontinue",
    ".weak ps_lstop",
    ".weak ps_lcontinue",
    ".weak ps_plog",
    ".pushsection .data.rel.ro.tg_imports, \"aw\", @progbits",
    ".balign 8",
    ".globl tg_imports",
    ".hidden tg_imports",
    "tg_imports:",
    ".quad ps_pglobal_lookup",
    ".quad ps_pdread",
    ".quad ps_pdwrite",
    ".quad ps_lgetregs",
    ".quad ps_lsetregs",
    ".quad ps_lgetfpregs",
    ".quad ps_lsetfpregs",
    ".quad ps_getpid",
    ".quad ps_get_thread_area",
    ".quad ps_lgetxregsize",
    ".quad ps_lgetxregs",
    ".quad ps_lsetxregs",
    ".quad ps_pstop",
    ".quad ps_pcontinue",
    ".quad ps_lstop",
    ".quad ps_lcontinue",
    ".quad ps_plog",
    ".popsection",
);

/// PS_OK.
pub(crate) const PS_OK: c_int = 0;
/// PS_NOSYM.
pub(crate) const PS_NOSYM: c_int = 5;
/// PS_NOFREGS.
pub(crate) const PS_NOFREGS: c_int = 6;
/// PS_NOXREGS.
pub(crate) const PS_NOXREGS: c_int = 7;

/// Tells the client why something could not be done, if it wants to know.
pub(crate) fn say(why: &str) {
    if let (Some(log), Ok(text)) = (imports().plog, std::ffi::CString::new(format!("libc_db: {}\n", safe(why)))) {
        // SAFETY: a format for one string, and that string.
        unsafe { log(c"%s".as_ptr(), text.as_ptr()) };
    }
}

/// The client's routines.
pub(crate) fn imports() -> &'static Imports {
    unsafe extern "C" {
        static tg_imports: Imports;
    }
    // SAFETY: the assembler above lays out one pointer per field, in order; the dynamic linker has
    // filled them (null where the client has no such routine) before any code of ours runs, and
    // nothing writes them afterwards.
    unsafe { &tg_imports }
}
