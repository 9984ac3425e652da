//! Whether a thread can be stopped without being killed by its seccomp filters.
//!
//! Filters see numbers: that of a call and its arguments. Those that we know are given; of those that we do not (addresses,
//! descriptors, lengths) every value is thought of. So the verdict holds whatever they are.

use crate::arch::syscall::{CLOCK_NANOSLEEP, FUTEX, NANOSLEEP, POLL, READ, RESTART_SYSCALL, WRITE};
use crate::arch::syscall_word;
use crate::proc::seccomp::{Filter, Verdict, verdict};
use crate::proc::{SyscallFile, parse_syscall};
use crate::target::Live;
use crate::{Lwp, Pid};

/// What is left of their time the kernel remembers, and they go on by another call.
const WITH_TIME_LEFT: [i64; 4] = [POLL, NANOSLEEP, FUTEX, CLOCK_NANOSLEEP];

/// Why a stop might kill a thread whose seccomp mode is `mode`, other than 0; `None` if it cannot. A thread that is stopped
/// in a system call repeats the call when it goes on, past its filters, and those may have come since.
pub(crate) fn danger_of_stop(pid: Pid, lwp: Lwp, mode: u32) -> Option<String> {
    let text = std::fs::read(format!("/proc/{pid}/task/{lwp}/syscall")).unwrap_or_default();
    let (number, args) = match parse_syscall(&text) {
        // Whatever it enters from now on its filters have allowed.
        Some(SyscallFile::Running | SyscallFile::Outside { .. }) => return None,
        Some(SyscallFile::Inside { number, args, .. }) => (number, args),
        _ => return Some("its system call cannot be read".to_owned()),
    };
    if mode == 1 {
        let name = syscall_word(number);
        let is_fine = matches!(number, READ | WRITE);
        return (!is_fine).then(|| format!("it is confined to four system calls, and {name} is none of them"));
    }
    let filters = Live::open(pid).ok().and_then(|live| live.seccomp_filters(lwp));
    let Some(filters) = filters else {
        return Some("only root can read its filters without a stop (with BPF)".to_owned());
    };
    let call = u32::try_from(number).ok()?;
    if verdict(&filters, call, &args.map(Some)) != Verdict::Allowed {
        return Some(format!("its filters forbid {}, which it would have to repeat", syscall_word(number)));
    }
    if WITH_TIME_LEFT.contains(&number) && !may_restart(&filters) {
        let (name, other) = (syscall_word(number), syscall_word(RESTART_SYSCALL));
        return Some(format!("its filters forbid {other}, by which its {name} would go on"));
    }
    None
}

/// Whether a call with a time limit may go on by the call that the kernel has for that.
pub(crate) fn may_restart(filters: &[Filter]) -> bool {
    verdict(filters, RESTART_SYSCALL as u32, &[None; 6]) == Verdict::Allowed
}
