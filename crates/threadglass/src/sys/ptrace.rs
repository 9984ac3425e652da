//! ptrace requests that nix does not wrap: register sets, the signal mask, and whatever has to do with
//! real-time signals, which nix has no names for.

use crate::Lwp;
use crate::arch::EXTENDED_STATE;
use crate::model::SignalSet;
use nix::errno::Errno;
use nix::sys::ptrace::Options;

/// What libc's ptrace takes for a request: the C libraries do not agree.
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;
#[cfg(target_env = "musl")]
type Request = libc::c_int;

/// Which registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterSet {
    /// NT_PRSTATUS: `struct user_regs_struct`, 216 bytes.
    General,
    /// NT_PRFPREG: `struct user_fpregs_struct`, 512 bytes.
    Float,
    /// The processor's extended state; the size depends on the processor.
    Extended,
}

impl RegisterSet {
    /// Its note, and room for it: little, since a thread stands still meanwhile. AMX brings the extended state to
    /// 11 KiB.
    fn note_and_room(self) -> (usize, usize) {
        match self {
            Self::General => (1, 256),
            Self::Float => (2, 1024),
            Self::Extended => (EXTENDED_STATE as usize, 16 << 10),
        }
    }
}

/// Reads a register set of a thread that the calling thread traces and that is stopped.
pub(crate) fn get_registers(lwp: Lwp, set: RegisterSet) -> Result<Vec<u8>, Errno> {
    let (note, room) = set.note_and_room();
    let mut bytes = vec![0u8; room];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `iov` describes `bytes`, which lives through the call; the kernel writes at most
    // `iov_len` bytes there and stores the count in `iov_len`.
    let rc = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, lwp.0, note, &raw mut iov) };
    Errno::result(rc)?;
    bytes.truncate(iov.iov_len);
    Ok(bytes)
}

/// Replaces a register set of a thread that the calling thread traces and that is stopped.
pub(crate) fn set_registers(lwp: Lwp, set: RegisterSet, bytes: &[u8]) -> Result<(), Errno> {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel only reads `iov_len` bytes from `bytes`, which lives through the call.
    let rc = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, lwp.0, set.note_and_room().0, &raw mut iov) };
    Errno::result(rc).map(drop)
}

/// Replaces the signal mask of a thread that the calling thread traces and that is stopped.
pub(crate) fn set_signal_mask(lwp: Lwp, mask: SignalSet) -> Result<(), Errno> {
    const PTRACE_SETSIGMASK: Request = 0x420b;
    let word = mask.0;
    // SAFETY: the kernel reads the eight bytes of `word`; the address argument is their count.
    let rc = unsafe { libc::ptrace(PTRACE_SETSIGMASK, lwp.0, size_of_val(&word), &raw const word) };
    Errno::result(rc).map(drop)
}

/// What became of a thread that we trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing new.
    None,
    /// It has ended, or is not ours.
    Ended,
    /// It stands still because we asked for it, or because its process is stopped.
    Stopped,
    /// It stands still on its way to receiving this signal, which is held back until we pass it on.
    Signalled(i32),
}

/// What became of `lwp` since the last time, without waiting.
pub(crate) fn poll_change(lwp: Lwp) -> Result<Change, Errno> {
    const PTRACE_EVENT_STOP: i32 = 128;
    let mut status = 0;
    // SAFETY: `status` is a live int for the kernel to write.
    let rc = unsafe { libc::waitpid(lwp.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match Errno::result(rc) {
        Err(Errno::ECHILD) => Ok(Change::Ended),
        Err(errno) => Err(errno),
        Ok(0) => Ok(Change::None),
        Ok(_) if !libc::WIFSTOPPED(status) => Ok(Change::Ended),
        Ok(_) if status >> 16 == PTRACE_EVENT_STOP => Ok(Change::Stopped),
        Ok(_) => Ok(Change::Signalled(libc::WSTOPSIG(status))),
    }
}

/// Lets a stopped thread go on, and hands it `signal` (0 for none).
pub(crate) fn go_on(lwp: Lwp, signal: i32) -> Result<(), Errno> {
    // SAFETY: PTRACE_CONT takes two integers and touches no memory of ours.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_CONT, lwp.0, 0usize, signal as usize) }).map(drop)
}

/// The signal mask of a thread that the calling thread traces and that is stopped.
pub(crate) fn get_signal_mask(lwp: Lwp) -> Result<SignalSet, Errno> {
    const PTRACE_GETSIGMASK: Request = 0x420a;
    let mut word = 0u64;
    // SAFETY: the kernel writes the eight bytes of `word`; the address argument is their count.
    let rc = unsafe { libc::ptrace(PTRACE_GETSIGMASK, lwp.0, size_of_val(&word), &raw mut word) };
    Errno::result(rc).map(|_| SignalSet(word))
}

/// What a stop at a system call looks like, once [`tell_syscalls`] was called.
pub(crate) const AT_SYSCALL: i32 = libc::SIGTRAP | 0x80;

/// Makes stops at system calls distinct from signals.
pub(crate) fn tell_syscalls(lwp: Lwp) -> Result<(), Errno> {
    nix::sys::ptrace::setoptions(nix::unistd::Pid::from_raw(lwp.0), Options::PTRACE_O_TRACESYSGOOD)
}

/// Lets a stopped thread go on to the beginning or the end of its next system call, and hands it `signal` (0 for none).
pub(crate) fn go_to_syscall(lwp: Lwp, signal: i32) -> Result<(), Errno> {
    // SAFETY: PTRACE_SYSCALL takes two integers and touches no memory of ours.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, lwp.0, 0usize, signal as usize) }).map(drop)
}

/// Where a stopped thread has its area for restartable sequences, if it has one.
pub(crate) fn rseq_area(lwp: Lwp) -> Option<u64> {
    const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;
    let mut about = [0u64; 3];
    // SAFETY: the kernel writes at most the size given into `about`.
    let rc = unsafe { libc::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, lwp.0, size_of_val(&about), about.as_mut_ptr()) };
    (rc > 0 && about[0] != 0).then_some(about[0])
}

/// One of the seccomp filters of a stopped thread, the oldest first: `None` when there are no more. Needs privilege.
pub(crate) fn seccomp_filter(lwp: Lwp, number: usize) -> Result<Option<Vec<[u8; 8]>>, Errno> {
    const PTRACE_SECCOMP_GET_FILTER: Request = 0x420c;
    let mut program = vec![[0u8; 8]; 4096];
    // SAFETY: no filter is longer than 4096 instructions of eight bytes, for which there is room.
    let rc = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, lwp.0, number, program.as_mut_ptr()) };
    match Errno::result(rc) {
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
        Ok(count) => {
            program.truncate(usize::try_from(count).unwrap_or(0));
            Ok(Some(program))
        }
    }
}
