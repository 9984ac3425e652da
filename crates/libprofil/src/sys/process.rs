//! Facts about the own process and thread, and what a helper thread needs to stay out of the way.

use std::io;
use std::time::Duration;

/// The kernel's number of the calling thread.
pub(crate) fn gettid() -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { libc::gettid() }
}

/// Gives the calling thread an empty table of open files of its own: what it opens has no number in the
/// program, and a program that closes all its files does not close these.
pub(crate) fn private_files() -> io::Result<()> {
    // SAFETY: descriptors of other threads are not touched: this thread leaves their table first. The caller
    // holds no descriptor.
    match unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `work` with all signals blocked, so that a thread it starts takes none of the program's.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are ours, all zeroes is a valid value, and the old mask is put back on the same thread.
    unsafe {
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        result
    }
}

/// CPU time: in user mode, and in the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub user: Duration,
    pub system: Duration,
}

/// CPU time of this process so far, without that of the calling thread.
pub(crate) fn usage_of_others() -> Usage {
    let usage = |who| {
        // SAFETY: the kernel fills the structure, for which all zeroes is a valid value.
        let all = unsafe {
            let mut all: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut all);
            all
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        (time(all.ru_utime), time(all.ru_stime))
    };
    let (process, thread) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_THREAD));
    Usage { user: process.0.saturating_sub(thread.0), system: process.1.saturating_sub(thread.1) }
}

/// Has our three functions called around every fork of this process.
///
/// When the library is loaded, not when profiling is first turned on: another thread could be in the middle of
/// a fork just then, and its child would find our lock held by nobody.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        use crate::state::{child, parent, prepare};
        // SAFETY: the library is never unloaded (it is linked with -z nodelete, or part of the program). Where
        // there is no memory for the handlers, children of fork are not profiled.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
    at_load
};

/// The program itself as it lies in memory: where its code is, and how far it was moved from the addresses in
/// its file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub bias: u64,
    pub text: std::ops::Range<u64>,
}

/// Asks the dynamic linker for it.
pub(crate) fn main_program() -> Program {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the linker passes a description that is valid during the call, and what we gave it.
        unsafe {
            let (info, program) = (&*info, &mut *data.cast::<Program>());
            program.bias = info.dlpi_addr;
            let headers = match info.dlpi_phnum {
                0 => &[],
                count => std::slice::from_raw_parts(info.dlpi_phdr, usize::from(count)),
            };
            for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
                let from = info.dlpi_addr.wrapping_add(header.p_vaddr);
                let to = from.saturating_add(header.p_memsz);
                let (low, high) = (program.text.start, program.text.end);
                program.text = if low == high { from..to } else { low.min(from)..high.max(to) };
            }
        }
        // The program comes first, and the others are not wanted.
        1
    }
    let mut program = Program::default();
    // SAFETY: `first` is called during this call only, with the address of `program`.
    unsafe { libc::dl_iterate_phdr(Some(first), std::ptr::from_mut(&mut program).cast()) };
    program
}
