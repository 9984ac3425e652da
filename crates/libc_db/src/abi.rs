//! The C types of `include/thread_db.h`, byte for byte. `tests/layout.rs` compares them with the header.

use std::ffi::{c_char, c_int, c_long, c_short, c_uint, c_ulong, c_void};

/// `td_err_e`, less TD_OK. The values are glibc's.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TdErr {
    Err = 1,
    NoThr = 2,
    NoLwp = 4,
    BadPh = 5,
    BadTh = 6,
    BadSh = 7,
    BadTa = 8,
    BadKey = 9,
    NoMsg = 10,
    NoFpregs = 11,
    NoLibThread = 12,
    NoEvent = 13,
    NoCapab = 14,
    DbErr = 15,
    NoTsd = 17,
    PartialReg = 19,
    NoXregs = 20,
    TlsDefer = 21,
    Version = 22,
    NoTls = 23,
}

/// Result of every function inside this crate.
pub(crate) type Td<T = ()> = Result<T, TdErr>;

/// What a C function returns for it.
pub(crate) fn code(result: Td) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error as c_int,
    }
}

/// `td_thragent_t`: opaque, never dereferenced.
pub(crate) enum ThrAgent {}

/// `struct ps_prochandle`: the client's, never dereferenced.
pub(crate) enum PsProc {}

/// `psaddr_t`.
pub(crate) type PsAddr = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrHandle {
    pub(crate) th_ta_p: *mut ThrAgent,
    pub(crate) th_unique: PsAddr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncHandle {
    pub(crate) sh_ta_p: *mut ThrAgent,
    pub(crate) sh_unique: PsAddr,
}

/// `sigset_t`: 1024 bits, of which Linux uses the first 64.
pub(crate) type SigSet = [u64; 16];

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ThrEvents {
    pub(crate) event_bits: [u32; 2],
}

#[repr(C)]
pub(crate) struct ThrInfo {
    pub(crate) ti_ta_p: *mut ThrAgent,
    pub(crate) ti_user_flags: c_uint,
    pub(crate) ti_tid: c_ulong,
    pub(crate) ti_tls: *mut c_char,
    pub(crate) ti_startfunc: PsAddr,
    pub(crate) ti_stkbase: PsAddr,
    pub(crate) ti_stksize: c_long,
    pub(crate) ti_ro_area: PsAddr,
    pub(crate) ti_ro_size: c_int,
    pub(crate) ti_state: c_int,
    pub(crate) ti_db_suspended: u8,
    pub(crate) ti_type: c_int,
    pub(crate) ti_pc: isize,
    pub(crate) ti_sp: isize,
    pub(crate) ti_flags: c_short,
    pub(crate) ti_pri: c_int,
    pub(crate) ti_lid: c_int,
    pub(crate) ti_sigmask: SigSet,
    pub(crate) ti_traceme: u8,
    pub(crate) ti_preemptflag: u8,
    pub(crate) ti_pirecflag: u8,
    pub(crate) ti_pending: SigSet,
    pub(crate) ti_events: ThrEvents,
}

#[repr(C)]
pub(crate) struct Notify {
    pub(crate) kind: c_int,
    /// A union in C; for a breakpoint, its address.
    pub(crate) address: PsAddr,
}

#[repr(C)]
pub(crate) struct EventMsg {
    pub(crate) event: c_int,
    pub(crate) th_p: *const ThrHandle,
    pub(crate) data: usize,
}

/// `td_syncinfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SyncInfo {
    pub(crate) si_ta_p: *mut ThrAgent,
    pub(crate) si_sv_addr: PsAddr,
    pub(crate) si_type: c_int,
    pub(crate) si_shared_type: u32,
    pub(crate) si_flags: [u8; 4],
    pub(crate) si_ownerpid: c_int,
    /// A union in C, all members of which are ints.
    pub(crate) si_state: c_int,
    pub(crate) si_size: c_int,
    pub(crate) si_has_waiters: u8,
    pub(crate) si_is_wlock: u8,
    pub(crate) si_rcount: u8,
    pub(crate) si_prioceiling: u8,
    /// Not a member in C: keeps what lies between from being anything.
    pub(crate) padding: u32,
    pub(crate) si_owner: ThrHandle,
    pub(crate) si_data: PsAddr,
}

/// `td_syncstats_t`.
#[repr(C)]
pub(crate) struct SyncStats {
    pub(crate) ss_info: SyncInfo,
    /// A union in C.
    pub(crate) ss_un: [u64; 16],
}

/// `td_ta_stats_t`.
#[repr(C)]
pub(crate) struct TaStats {
    pub(crate) nthreads: c_int,
    pub(crate) r_concurrency: c_int,
    pub(crate) nrunnable_num: c_int,
    pub(crate) nrunnable_den: c_int,
    pub(crate) a_concurrency_num: c_int,
    pub(crate) a_concurrency_den: c_int,
    pub(crate) nlwps_num: c_int,
    pub(crate) nlwps_den: c_int,
    pub(crate) nidle_num: c_int,
    pub(crate) nidle_den: c_int,
}

/// `prgregset_t` and `prfpregset_t` in bytes.
pub(crate) const GREGS_SIZE: usize = 216;
pub(crate) const FPREGS_SIZE: usize = 512;

pub(crate) type ThrIterF = unsafe extern "C-unwind" fn(*const ThrHandle, *mut c_void) -> c_int;
pub(crate) type KeyIterF =
    unsafe extern "C-unwind" fn(c_uint, Option<unsafe extern "C-unwind" fn(*mut c_void)>, *mut c_void) -> c_int;
pub(crate) type SyncIterF = unsafe extern "C-unwind" fn(*const SyncHandle, *mut c_void) -> c_int;

const _: () = {
    assert!(size_of::<ThrHandle>() == 16 && size_of::<SyncHandle>() == 16);
    assert!(size_of::<ThrInfo>() == 384 && std::mem::offset_of!(ThrInfo, ti_events) == 376);
    assert!(std::mem::offset_of!(ThrInfo, ti_sigmask) == 112 && std::mem::offset_of!(ThrInfo, ti_pending) == 248);
    assert!(std::mem::offset_of!(ThrInfo, ti_lid) == 104 && std::mem::offset_of!(ThrInfo, ti_state) == 68);
    assert!(size_of::<SyncInfo>() == 72 && std::mem::offset_of!(SyncInfo, si_owner) == 48);
    assert!(std::mem::offset_of!(SyncInfo, si_state) == 32 && size_of::<SyncStats>() == 200);
    assert!(size_of::<Notify>() == 16 && size_of::<EventMsg>() == 24 && size_of::<ThrEvents>() == 8);
    assert!(size_of::<TaStats>() == 40);
};
