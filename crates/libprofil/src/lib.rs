//! `libprofil.so`: the functions of `<profil.h>` under the names that C knows.
//!
//! A library of its own, because whatever links the crate `profil` would have these names too.

use functions::c;
use std::ffi::{c_char, c_int, c_long, c_uint, c_ushort, c_void};

/// `profil(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn profil(buffer: *mut c_ushort, size: usize, offset: usize, scale: c_uint) -> c_int {
    c::profil(buffer, size, offset, scale)
}

/// `pcsample(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcsample(samples: *mut usize, count: c_long) -> c_long {
    c::pcsample(samples, count)
}

/// Starts a histogram that the library keeps.
#[unsafe(no_mangle)]
pub extern "C" fn profil_start(low: *const c_void, high: *const c_void) -> c_int {
    c::profil_start(low, high)
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn profil_stop() -> c_int {
    c::profil_stop()
}

/// Pauses it, or goes on.
#[unsafe(no_mangle)]
pub extern "C" fn profil_control(mode: c_int) -> c_int {
    c::profil_control(mode)
}

/// Writes it to a file that gprof reads.
///
/// # Safety
///
/// `path` is NULL (for `gmon.out`) or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profil_write_gmon(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { c::profil_write_gmon(path) }
}

/// Tells how the latest profile goes, or went.
///
/// # Safety
///
/// `info` is NULL or points to a `struct profil_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profil_get_info(info: *mut c::Info) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { c::profil_get_info(info) }
}
