//! System calls without the C library: they must not touch `errno`.

use core::arch::asm;

const MMAP: usize = 9;
const MADVISE: usize = 28;
const GETPID: usize = 39;
const KILL: usize = 62;
const PRCTL: usize = 157;
const GETTID: usize = 186;
const FUTEX: usize = 202;
const CLOCK_GETTIME: usize = 228;

const FUTEX_WAKE_PRIVATE: usize = 1 | 128;

/// `-errno` on failure.
unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: as the kernel's interface says; what the call itself does is up to the caller.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// Whether there is a process of that id, whosever it is.
pub fn is_process(pid: u32) -> bool {
    const ESRCH: isize = -3;
    // SAFETY: no signal is sent.
    (pid as i32) > 0 && unsafe { call(KILL, [pid as usize, 0, 0, 0, 0, 0]) } != ESRCH
}

/// Wakes one thread that waits for a private futex. The word may be gone by now, which the kernel does not mind.
#[cold]
#[inline(never)]
pub fn wake_one(word: usize) {
    // SAFETY: the kernel does no more with the address than compare it.
    unsafe { call(FUTEX, [word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: room for a `timespec`.
    unsafe { call(CLOCK_GETTIME, [1, (&raw mut time).addr(), 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Anonymous private memory that is committed as it is used, and counts for nothing before.
pub fn map(bytes: usize) -> Option<usize> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    // SAFETY: a new mapping, wherever the kernel likes.
    let result = unsafe { call(MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    (result > 0).then_some(result as usize)
}

/// Empty in a forked child.
pub fn wipe_on_fork(start: usize, bytes: usize) -> bool {
    const WIPEONFORK: usize = 18;
    // SAFETY: our own memory.
    unsafe { call(MADVISE, [start, bytes, WIPEONFORK, 0, 0, 0]) == 0 }
}

/// Bytes of a large page.
pub const HUGE: usize = 1 << 21;

pub fn huge_pages(start: usize, bytes: usize) {
    const HUGEPAGE: usize = 14;
    // SAFETY: our own memory.
    unsafe { call(MADVISE, [start, bytes, HUGEPAGE, 0, 0, 0]) };
}

/// Makes one large page of those in use, where the kernel can (since 6.1; others do it when they find the time).
pub fn merge_pages(start: usize) {
    const COLLAPSE: usize = 25;
    huge_pages(start, HUGE);
    // SAFETY: our own memory, which keeps what is in it.
    unsafe { call(MADVISE, [start, HUGE, COLLAPSE, 0, 0, 0]) };
}

/// Gives a mapping a name in `/proc/PID/maps`, where the kernel can.
pub fn name(start: usize, bytes: usize, name: &core::ffi::CStr) {
    const SET_VMA: usize = 0x5356_4d41;
    // SAFETY: our own memory, and a string.
    unsafe { call(PRCTL, [SET_VMA, 0, start, bytes, name.as_ptr().addr(), 0]) };
}

pub fn abort() -> ! {
    // SAFETY: an instruction that faults.
    unsafe { asm!("ud2", options(noreturn)) }
}
