//! The C functions of `<profil.h>`.
#![allow(unsafe_code, reason = "functions for C have names that the linker must take on trust")]

use crate::api::{DEFAULT_RATE, counts, write_gmon};
use crate::clock::{Choice, Clock};
use crate::session::{Settings, StartError};
use crate::sink::{Ended, Sink};
use crate::state::{self, Region};
use crate::sys::process;
use perf::HIGHEST_RATE;
use perf::histogram::Layout;
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_uint, c_ushort, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Most cells of the histogram that `profil_start` keeps; a larger program gets more bytes to a cell.
const REGION_CELLS: u64 = 1 << 22;

/// What C functions answer on failure, with `errno`.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the address is that of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Nothing unwinds into C. A panic would be a defect of ours; it is told as a failure.
fn guarded<T>(work: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(libc::EFAULT))
}

fn status(result: Result<(), c_int>) -> c_int {
    result.map_or_else(fail, |()| 0)
}

/// The rate and the clock that the environment asks for; what makes no sense there is not taken.
fn settings() -> Settings {
    let rate = std::env::var("PROFIL_HZ").ok().and_then(|text| text.trim().parse().ok());
    let choice = match std::env::var("PROFIL_CLOCK").as_deref() {
        Ok("perf") => Choice::Only(Clock::Perf),
        Ok("timers") => Choice::Only(Clock::Timers),
        _ => Choice::Auto,
    };
    Settings { rate: rate.filter(|rate| (1..=HIGHEST_RATE).contains(rate)).unwrap_or(DEFAULT_RATE), choice }
}

fn errno(error: &StartError) -> c_int {
    match error {
        StartError::Thread(error) => error.raw_os_error().unwrap_or(libc::EAGAIN),
        StartError::Clock(refused) => refused.errno(),
    }
}

/// Counts ticks of all threads in `buffer`: see `profil(3)`. A `scale` of 0 or 1, or a NULL buffer, turns
/// profiling off.
#[unsafe(no_mangle)]
pub extern "C" fn profil(buffer: *mut c_ushort, size: usize, offset: usize, scale: c_uint) -> c_int {
    status(guarded(|| {
        let layout = Layout::of_buffer(size as u64, offset as u64, scale);
        let mut state = state::lock();
        if buffer.is_null() || !layout.is_on() {
            state.stop();
            // A count of pcsample ends here too.
            if state.session.as_ref().is_some_and(|session| matches!(session.sink(), Sink::Samples { .. })) {
                state.session = None;
            }
            return Ok(());
        }
        let sink = Sink::Cells { address: buffer as u64, layout };
        state.replace(settings(), sink).map(drop).map_err(|error| errno(&error))
    }))
}

/// Stores the program counter of every tick in `samples`: see `pcsample(3)`. Gives the number of those stored
/// since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn pcsample(samples: *mut usize, count: c_long) -> c_long {
    let result = guarded(|| {
        let most = u64::try_from(count).map_err(|_| libc::EINVAL)?;
        let mut state = state::lock();
        state.stop();
        let stored = match &state.session {
            Some(session) if matches!(session.sink(), Sink::Samples { .. }) => session.stats().ticks,
            _ => 0,
        };
        if most == 0 {
            state.session = None;
        } else {
            let sink = Sink::Samples { address: samples as u64, most };
            state.replace(settings(), sink).map_err(|error| errno(&error))?;
        }
        Ok(c_long::try_from(stored).unwrap_or(c_long::MAX))
    });
    result.unwrap_or_else(|errno| c_long::from(fail(errno)))
}

/// Starts a histogram that the library keeps, for the code from `low` up to `high`, or for all of the program
/// when both are NULL.
#[unsafe(no_mangle)]
pub extern "C" fn profil_start(low: *const c_void, high: *const c_void) -> c_int {
    status(guarded(|| {
        let (low, high) = (low as u64, high as u64);
        let region = if (low, high) == (0, 0) { process::main_program().text } else { low..high };
        let layout = Layout::covering(region.clone(), REGION_CELLS);
        if layout.region().end < region.end {
            return Err(libc::EINVAL);
        }
        let counts = counts(&layout).ok_or(libc::EINVAL)?;
        let settings = settings();
        let mut state = state::lock();
        let sink = Sink::Owned { layout, counts: counts.clone() };
        state.replace(settings, sink).map_err(|error| errno(&error))?;
        state.region = Some(Region { layout, counts, rate: settings.rate });
        Ok(())
    }))
}

/// Ends whatever profile there is. The histogram of `profil_start` is kept.
#[unsafe(no_mangle)]
pub extern "C" fn profil_stop() -> c_int {
    status(guarded(|| {
        state::lock().stop();
        Ok(())
    }))
}

/// Lets the profile stand still (`mode` 0) or go on, as `moncontrol` does.
#[unsafe(no_mangle)]
pub extern "C" fn profil_control(mode: c_int) -> c_int {
    status(guarded(|| {
        let state = state::lock();
        let session = state.running().ok_or(libc::EINVAL)?;
        if mode == 0 {
            session.pause()
        } else {
            session.resume()
        }
        Ok(())
    }))
}

/// Writes the histogram of `profil_start` to a file that gprof reads.
///
/// # Safety
///
/// `path` is NULL (for `gmon.out`) or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profil_write_gmon(path: *const c_char) -> c_int {
    status(guarded(|| {
        let path: &[u8] = if path.is_null() {
            b"gmon.out"
        } else {
            // SAFETY: the caller's promise.
            unsafe { CStr::from_ptr(path) }.to_bytes()
        };
        let region = {
            let state = state::lock();
            if let Some(session) = state.running() {
                session.flush();
            }
            state.region.clone().ok_or(libc::EINVAL)?
        };
        let counts: Vec<_> = region.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        write_gmon(Path::new(OsStr::from_bytes(path)), &region.layout, &counts, region.rate)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }))
}

/// `struct profil_info` of `<profil.h>`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Info {
    /// `PROFIL_OFF` (0), `_ON` (1), `_PAUSED` (2), `_SATURATED` (3), `_FAULT` (4), `_FULL` (5), `_FAILED` (6).
    pub state: c_int,
    /// 0 none, `PROFIL_PERF` (1), `PROFIL_TIMERS` (2).
    pub clock: c_int,
    /// Ticks per second of CPU time that were asked for.
    pub rate: c_uint,
    /// Not used.
    pub reserved: c_uint,
    /// Samples per second of CPU time, as it was.
    pub achieved_rate: f64,
    /// CPU time that could have ticks.
    pub cpu_seconds: f64,
    /// Ticks counted or stored.
    pub ticks: u64,
    /// Ticks outside the region.
    pub outside: u64,
    /// Ticks lost.
    pub lost: u64,
    /// Times the kernel slowed the clock down.
    pub throttled: u64,
}

/// Tells how the latest profile goes, or went.
///
/// # Safety
///
/// `info` is NULL or points to a `struct profil_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profil_get_info(info: *mut Info) -> c_int {
    status(guarded(|| {
        if info.is_null() {
            return Err(libc::EINVAL);
        }
        let state = state::lock();
        let mut told = Info::default();
        if let Some(session) = &state.session {
            session.flush();
            let (stats, on) = (session.stats(), !session.is_finished());
            told = Info {
                state: match stats.ended {
                    Some(Ended::Saturated) => 3,
                    Some(Ended::Fault) => 4,
                    Some(Ended::Full) => 5,
                    Some(Ended::Failed) => 6,
                    None if on && stats.paused => 2,
                    None => c_int::from(on),
                },
                clock: match stats.clock {
                    None => 0,
                    Some(Clock::Perf) => 1,
                    Some(Clock::Timers) => 2,
                },
                rate: stats.rate,
                reserved: 0,
                achieved_rate: stats.achieved_rate().unwrap_or(0.0),
                cpu_seconds: stats.cpu_time.as_secs_f64(),
                ticks: stats.ticks,
                outside: stats.outside,
                lost: stats.lost,
                throttled: stats.throttled,
            };
        }
        // SAFETY: the caller's promise.
        unsafe { info.write(told) };
        Ok(())
    }))
}
