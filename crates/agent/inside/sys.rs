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
pub unsafe fn call(number: usize, args: [usize; 6]) -> isize {
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

/// Whether there is a thread of that id in this process.
pub fn is_thread(tid: u32) -> bool {
    const TGKILL: usize = 234;
    const ESRCH: isize = -3;
    // SAFETY: no signal is sent.
    unsafe { call(TGKILL, [getpid() as usize, tid as usize, 0, 0, 0, 0]) != ESRCH }
}

/// Whether a word of an object's data can be written: the kernel adds nothing to it.
pub fn is_writable(address: usize) -> bool {
    const WAKE_OP_PRIVATE: usize = 5 | 128;
    const ADD_NOTHING: usize = 1 << 28;
    let word = 0_u32;
    // SAFETY: a word that nobody waits for, and one that keeps its value. Without a fault if it cannot be written.
    unsafe { call(FUTEX, [(&raw const word).addr(), WAKE_OP_PRIVATE, 0, 0, address, ADD_NOTHING]) >= 0 }
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

/// Sleeps for so many nanoseconds, or less.
pub fn nap(nanoseconds: usize) {
    const NANOSLEEP: usize = 35;
    let time = [0, nanoseconds];
    // SAFETY: a `timespec`.
    unsafe { call(NANOSLEEP, [(&raw const time).addr(), 0, 0, 0, 0, 0]) };
}

/// Lets a page be written, or only read again.
pub fn protect(start: usize, bytes: usize, is_writable: bool) -> bool {
    const MPROTECT: usize = 10;
    // SAFETY: a page of an object's data that is read by all and written by us alone.
    unsafe { call(MPROTECT, [start, bytes, if is_writable { 3 } else { 1 }, 0, 0, 0]) == 0 }
}

pub fn unmap(start: usize, bytes: usize) {
    const MUNMAP: usize = 11;
    // SAFETY: memory that was made for us, and which nobody uses any more.
    unsafe { call(MUNMAP, [start, bytes, 0, 0, 0, 0]) };
}

/// A word of our own memory, if there is one.
pub fn peek(address: usize) -> Option<usize> {
    const PROCESS_VM_READV: usize = 310;
    let mut word = 0_usize;
    copy(PROCESS_VM_READV, (&raw mut word).addr(), address).then_some(word)
}

/// Writes a word of our own memory, if it can be written.
pub fn poke(address: usize, word: usize) -> bool {
    const PROCESS_VM_WRITEV: usize = 311;
    copy(PROCESS_VM_WRITEV, (&raw const word).addr(), address)
}

fn copy(number: usize, local: usize, remote: usize) -> bool {
    let (local, remote) = ([local, 8], [remote, 8]);
    let pid = getpid() as usize;
    // SAFETY: two ranges of eight bytes, one of them on our stack; the kernel checks the other.
    unsafe { call(number, [pid, (&raw const local).addr(), 1, (&raw const remote).addr(), 1, 0]) == 8 }
}

/// Names the calling thread.
pub fn name_thread(name: &core::ffi::CStr) {
    const SET_NAME: usize = 15;
    // SAFETY: a string.
    unsafe { call(PRCTL, [SET_NAME, name.as_ptr().addr(), 0, 0, 0, 0]) };
}

/// Gives the calling thread a table of descriptors of its own, with nothing in it: what the program closes cannot be
/// ours, and what it forks does not inherit ours. Where the kernel cannot, the table stays the program's.
pub fn own_descriptors() {
    const CLOSE_RANGE: usize = 436;
    const UNSHARE: usize = 2;
    // SAFETY: with this flag the program's own table stays as it is.
    unsafe { call(CLOSE_RANGE, [0, u32::MAX as usize, UNSHARE, 0, 0, 0]) };
}

/// A pipe: reading end, writing end.
pub fn pipe() -> Option<(u32, u32)> {
    const PIPE2: usize = 293;
    const NONBLOCK_CLOEXEC: usize = 0o4000 | 0o2_000_000;
    let mut ends = [0_u32; 2];
    // SAFETY: room for two descriptors.
    let result = unsafe { call(PIPE2, [(&raw mut ends).addr(), NONBLOCK_CLOEXEC, 0, 0, 0, 0]) };
    (result == 0).then_some((ends[0], ends[1]))
}

/// The inode of a descriptor, or 0.
pub fn inode(fd: u32) -> u64 {
    const FSTAT: usize = 5;
    let mut stat = [0_u64; 18];
    // SAFETY: room for a `stat`, which is 144 bytes.
    let result = unsafe { call(FSTAT, [fd as usize, (&raw mut stat).addr(), 0, 0, 0, 0]) };
    if result == 0 { stat[1] } else { 0 }
}

pub fn close(fd: u32) {
    const CLOSE: usize = 3;
    // SAFETY: one of our own.
    unsafe { call(CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Reads a message of eight bytes: `Some(None)` if there is none, `None` if nobody can write one any more.
pub fn receive(fd: u32) -> Option<Option<[u8; 8]>> {
    const READ: usize = 0;
    let mut bytes = [0_u8; 8];
    // SAFETY: room for them.
    match unsafe { call(READ, [fd as usize, (&raw mut bytes).addr(), 8, 0, 0, 0]) } {
        8 => Some(Some(bytes)),
        0 => None,
        -11 | -4 => Some(None),
        _ => None,
    }
}

/// A handle of a process, by its id.
pub fn pidfd(pid: u32) -> Option<u32> {
    const PIDFD_OPEN: usize = 434;
    // SAFETY: two numbers.
    let result = unsafe { call(PIDFD_OPEN, [pid as usize, 0, 0, 0, 0, 0]) };
    u32::try_from(result).ok()
}

/// What `poll` takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Poll {
    pub fd: i32,
    pub wanted: i16,
    pub got: i16,
}

/// Waits for one of them, for so many milliseconds, or for ever (-1).
pub fn poll(these: &mut [Poll], milliseconds: i32) {
    const POLL: usize = 7;
    // SAFETY: as many as are told.
    unsafe { call(POLL, [these.as_mut_ptr().addr(), these.len(), milliseconds as isize as usize, 0, 0, 0]) };
}
