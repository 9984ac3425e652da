//! Numbers and names of system calls.

pub(crate) use libc::{
    SYS_bpf as BPF, SYS_clock_nanosleep as CLOCK_NANOSLEEP, SYS_epoll_pwait as EPOLL_PWAIT,
    SYS_epoll_pwait2 as EPOLL_PWAIT2, SYS_epoll_wait as EPOLL_WAIT, SYS_exit as EXIT, SYS_exit_group as EXIT_GROUP,
    SYS_futex as FUTEX, SYS_get_robust_list as GET_ROBUST_LIST, SYS_getdents64 as GETDENTS64,
    SYS_io_getevents as IO_GETEVENTS, SYS_kcmp as KCMP, SYS_nanosleep as NANOSLEEP, SYS_poll as POLL, SYS_read as READ,
    SYS_restart_syscall as RESTART_SYSCALL, SYS_rt_sigtimedwait as RT_SIGTIMEDWAIT,
    SYS_sched_getparam as SCHED_GETPARAM, SYS_sched_getscheduler as SCHED_GETSCHEDULER,
    SYS_sched_setparam as SCHED_SETPARAM, SYS_sched_setscheduler as SCHED_SETSCHEDULER, SYS_sched_yield as SCHED_YIELD,
    SYS_semop as SEMOP, SYS_semtimedop as SEMTIMEDOP, SYS_tgkill as TGKILL, SYS_write as WRITE,
};
#[cfg(feature = "agent")]
pub(crate) use libc::{
    SYS_brk as BRK, SYS_clock_gettime as CLOCK_GETTIME, SYS_clone as CLONE, SYS_clone3 as CLONE3, SYS_close as CLOSE,
    SYS_close_range as CLOSE_RANGE, SYS_fstat as FSTAT, SYS_getpid as GETPID, SYS_getrandom as GETRANDOM,
    SYS_gettid as GETTID, SYS_kill as KILL, SYS_madvise as MADVISE, SYS_memfd_create as MEMFD_CREATE, SYS_mmap as MMAP,
    SYS_mprotect as MPROTECT, SYS_munmap as MUNMAP, SYS_newfstatat as NEWFSTATAT, SYS_openat as OPENAT,
    SYS_pause as PAUSE, SYS_pidfd_open as PIDFD_OPEN, SYS_pipe2 as PIPE2, SYS_prctl as PRCTL, SYS_pread64 as PREAD64,
    SYS_process_vm_readv as PROCESS_VM_READV, SYS_process_vm_writev as PROCESS_VM_WRITEV, SYS_rseq as RSEQ,
    SYS_rt_sigprocmask as RT_SIGPROCMASK, SYS_rt_sigreturn as RT_SIGRETURN, SYS_rt_sigsuspend as RT_SIGSUSPEND,
    SYS_sched_getaffinity as SCHED_GETAFFINITY, SYS_set_robust_list as SET_ROBUST_LIST, SYS_wait4 as WAIT4,
    SYS_waitid as WAITID,
};

/// `futex_wait`, which crate libc does not have.
pub(crate) const FUTEX_WAIT: i64 = 455;

use std::borrow::Cow;

/// Name of system call `number`, or `None` for one that is newer than this table.
///
/// ```
/// assert_eq!(threadglass::syscall_name(202), Some("futex"));
/// assert_eq!(threadglass::syscall_name(100_000), None);
/// ```
pub fn syscall_name(number: i64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    OLD_NAMES.get(number).or_else(|| NEW_NAMES.get(number.checked_sub(FIRST_NEW)?)).copied()
}

/// [`syscall_name`], or `syscall_N`.
pub(crate) fn syscall_word(number: i64) -> Cow<'static, str> {
    syscall_name(number).map_or_else(|| format!("syscall_{number}").into(), Cow::Borrowed)
}

/// Bytes of code before a place that tell which system call was made there.
pub(crate) const CODE_OF_CALL: usize = 7;

/// The number of the system call that `code` makes at its end, where the code itself has that number.
pub(crate) fn number_in_code(code: [u8; CODE_OF_CALL]) -> Option<i64> {
    // mov eax, number; syscall
    let [0xb8, a, b, c, d, 0x0f, 0x05] = code else { return None };
    Some(i64::from(u32::from_le_bytes([a, b, c, d]))).filter(|number| syscall_name(*number).is_some())
}

/// By number; the kernel has left a gap before [`FIRST_NEW`].
#[rustfmt::skip]
const OLD_NAMES: [&str; 335] = [
    "read", "write", "open", "close", "stat", "fstat", "lstat", "poll", "lseek", "mmap", "mprotect",
    "munmap", "brk", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "ioctl", "pread64", "pwrite64",
    "readv", "writev", "access", "pipe", "select", "sched_yield", "mremap", "msync", "mincore", "madvise",
    "shmget", "shmat", "shmctl", "dup", "dup2", "pause", "nanosleep", "getitimer", "alarm", "setitimer",
    "getpid", "sendfile", "socket", "connect", "accept", "sendto", "recvfrom", "sendmsg", "recvmsg",
    "shutdown", "bind", "listen", "getsockname", "getpeername", "socketpair", "setsockopt", "getsockopt",
    "clone", "fork", "vfork", "execve", "exit", "wait4", "kill", "uname", "semget", "semop", "semctl",
    "shmdt", "msgget", "msgsnd", "msgrcv", "msgctl", "fcntl", "flock", "fsync", "fdatasync", "truncate",
    "ftruncate", "getdents", "getcwd", "chdir", "fchdir", "rename", "mkdir", "rmdir", "creat", "link",
    "unlink", "symlink", "readlink", "chmod", "fchmod", "chown", "fchown", "lchown", "umask", "gettimeofday",
    "getrlimit", "getrusage", "sysinfo", "times", "ptrace", "getuid", "syslog", "getgid", "setuid", "setgid",
    "geteuid", "getegid", "setpgid", "getppid", "getpgrp", "setsid", "setreuid", "setregid", "getgroups",
    "setgroups", "setresuid", "getresuid", "setresgid", "getresgid", "getpgid", "setfsuid", "setfsgid",
    "getsid", "capget", "capset", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "rt_sigsuspend",
    "sigaltstack", "utime", "mknod", "uselib", "personality", "ustat", "statfs", "fstatfs", "sysfs",
    "getpriority", "setpriority", "sched_setparam", "sched_getparam", "sched_setscheduler",
    "sched_getscheduler", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
    "mlock", "munlock", "mlockall", "munlockall", "vhangup", "modify_ldt", "pivot_root", "_sysctl", "prctl",
    "arch_prctl", "adjtimex", "setrlimit", "chroot", "sync", "acct", "settimeofday", "mount", "umount2",
    "swapon", "swapoff", "reboot", "sethostname", "setdomainname", "iopl", "ioperm", "create_module",
    "init_module", "delete_module", "get_kernel_syms", "query_module", "quotactl", "nfsservctl", "getpmsg",
    "putpmsg", "afs_syscall", "tuxcall", "security", "gettid", "readahead", "setxattr", "lsetxattr",
    "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
    "removexattr", "lremovexattr", "fremovexattr", "tkill", "time", "futex", "sched_setaffinity",
    "sched_getaffinity", "set_thread_area", "io_setup", "io_destroy", "io_getevents", "io_submit",
    "io_cancel", "get_thread_area", "lookup_dcookie", "epoll_create", "epoll_ctl_old", "epoll_wait_old",
    "remap_file_pages", "getdents64", "set_tid_address", "restart_syscall", "semtimedop", "fadvise64",
    "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete", "clock_settime",
    "clock_gettime", "clock_getres", "clock_nanosleep", "exit_group", "epoll_wait", "epoll_ctl", "tgkill",
    "utimes", "vserver", "mbind", "set_mempolicy", "get_mempolicy", "mq_open", "mq_unlink", "mq_timedsend",
    "mq_timedreceive", "mq_notify", "mq_getsetattr", "kexec_load", "waitid", "add_key", "request_key",
    "keyctl", "ioprio_set", "ioprio_get", "inotify_init", "inotify_add_watch", "inotify_rm_watch",
    "migrate_pages", "openat", "mkdirat", "mknodat", "fchownat", "futimesat", "newfstatat", "unlinkat",
    "renameat", "linkat", "symlinkat", "readlinkat", "fchmodat", "faccessat", "pselect6", "ppoll", "unshare",
    "set_robust_list", "get_robust_list", "splice", "tee", "sync_file_range", "vmsplice", "move_pages",
    "utimensat", "epoll_pwait", "signalfd", "timerfd_create", "eventfd", "fallocate", "timerfd_settime",
    "timerfd_gettime", "accept4", "signalfd4", "eventfd2", "epoll_create1", "dup3", "pipe2", "inotify_init1",
    "preadv", "pwritev", "rt_tgsigqueueinfo", "perf_event_open", "recvmmsg", "fanotify_init",
    "fanotify_mark", "prlimit64", "name_to_handle_at", "open_by_handle_at", "clock_adjtime", "syncfs",
    "sendmmsg", "setns", "getcpu", "process_vm_readv", "process_vm_writev", "kcmp", "finit_module",
    "sched_setattr", "sched_getattr", "renameat2", "seccomp", "getrandom", "memfd_create", "kexec_file_load",
    "bpf", "execveat", "userfaultfd", "membarrier", "mlock2", "copy_file_range", "preadv2", "pwritev2",
    "pkey_mprotect", "pkey_alloc", "pkey_free", "statx", "io_pgetevents", "rseq",
];

const FIRST_NEW: usize = 424;

/// By number, from [`FIRST_NEW`] on.
#[rustfmt::skip]
const NEW_NAMES: [&str; 44] = [
    "pidfd_send_signal", "io_uring_setup", "io_uring_enter", "io_uring_register", "open_tree", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "pidfd_open", "clone3", "close_range", "openat2",
    "pidfd_getfd", "faccessat2", "process_madvise", "epoll_pwait2", "mount_setattr", "quotactl_fd",
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "memfd_secret",
    "process_mrelease", "futex_waitv", "set_mempolicy_home_node", "cachestat", "fchmodat2",
    "map_shadow_stack", "futex_wake", "futex_wait", "futex_requeue", "statmount", "listmount",
    "lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules", "mseal", "setxattrat", "getxattrat",
    "listxattrat", "removexattrat", "open_tree_attr",
];
