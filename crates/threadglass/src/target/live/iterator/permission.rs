//! Whether the iterator may be used on a process: decided from our own side, so that a refusal
//! leaves no trace in anybody's log.

use crate::Pid;
use crate::target::Live;
use crate::target::{CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, has_capability};
use std::fs;
use std::os::unix::fs::MetadataExt;

const CAP_BPF: u32 = 39;
/// Inode of the initial pid namespace, fixed in the kernel.
const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// Whether it may be used on `live`, and its numbers mean the same as those of `/proc`.
pub(super) fn granted(live: &Live) -> bool {
    may_read_kernel(live)
        // Of ourselves we would see the thread that looks as running; `/proc` shows its call.
        && live.pid() != Pid::me()
        && live.leader_status().namespaces == 1
        && !has_tickless_cpus()
}

/// Whether what the kernel knows of threads of `live` may be read from its memory.
pub(super) fn may_read_kernel(live: &Live) -> bool {
    live.denial().is_none() && may_read_all()
}

/// The same of the threads of any process.
pub(super) fn may_read_all() -> bool {
    std::env::var_os("THREADGLASS_NO_BPF").is_none_or(|value| value != "1")
        // With this capability `/proc` hides nothing of any thread, whatever user it runs as.
        && has_capability(CAP_SYS_PTRACE)
        && (has_capability(CAP_SYS_ADMIN) || has_capability(CAP_BPF) && has_capability(CAP_PERFMON))
        && fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INITIAL_PID_NAMESPACE)
}

/// On CPUs that run without clock ticks (`nohz_full=`), the times of a running thread are not in its
/// fields: `/proc` adds what has passed since it began to run.
fn has_tickless_cpus() -> bool {
    fs::read("/sys/devices/system/cpu/nohz_full").is_ok_and(|list| list.iter().any(u8::is_ascii_digit))
}
