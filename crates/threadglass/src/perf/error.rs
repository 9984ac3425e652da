//! Why there are no samples.

use crate::Pid;
use crate::target::TargetError;
use ::perf::{Error, HIGHEST_RATE};

/// Why threads cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    /// The process has ended.
    #[error(transparent)]
    Exited(TargetError),
    /// The kernel permits no perf events.
    #[error("perf events are not permitted here: {0}")]
    Forbidden(String),
    /// The kernel may not be sampled.
    #[error("the kernel may not be sampled: {0}")]
    NoKernel(String),
    /// The rate cannot be had.
    #[error("{rate} samples per second are not possible: {limit}")]
    Rate {
        /// What was asked for.
        rate: u32,
        /// What the limit is, and whose.
        limit: String,
    },
    /// More events would be needed than there may be.
    #[error(
        "{threads} threads on {cpus} CPUs need {} perf events, and only {limit} files may be open \
         (`ulimit -n`; with CAP_PERFMON one event for each CPU is enough)",
        threads.saturating_mul(*cpus)
    )]
    TooMany {
        /// Threads.
        threads: usize,
        /// CPUs.
        cpus: usize,
        /// Most open files.
        limit: usize,
    },
    /// The kernel gives no memory for samples.
    #[error(
        "no memory for samples: {0} (kernel.perf_event_mlock_kb limits it: wait for other profilers to end, or run as \
         root)"
    )]
    Ring(std::io::Error),
    /// Something else about perf.
    #[error("perf_event_open: {0}")]
    Perf(std::io::Error),
}

impl SamplingError {
    /// Why user mode may be sampled, and the kernel not.
    pub(super) fn no_kernel(error: &std::io::Error) -> Self {
        let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        Self::NoKernel(match level.trim().parse::<i32>() {
            Ok(level) if level > 1 => format!(
                "kernel.perf_event_paranoid is {level} (`sudo sysctl kernel.perf_event_paranoid=1`, run as root, or with \
                 CAP_PERFMON)"
            ),
            _ => format!("{error} (run as root, or with CAP_PERFMON)"),
        })
    }

    /// Explains what the sampler says.
    pub(super) fn of_sampler(error: Error, pid: Pid) -> Self {
        match error {
            Error::TooMany { threads, cpus, limit } => Self::TooMany { threads, cpus, limit },
            Error::NoThreads => Self::Exited(TargetError::Exited(pid)),
            Error::Rate(rate) => Self::Rate { rate, limit: format!("use 1 to {HIGHEST_RATE}") },
            Error::Map(error) => Self::Ring(error),
            Error::Open(error) => match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => Self::Forbidden(forbidden(&error)),
                _ => Self::Perf(error),
            },
        }
    }
}

fn forbidden(error: &std::io::Error) -> String {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match (paranoid.trim().parse::<i32>(), error.raw_os_error()) {
        (Err(_), _) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".to_owned(),
        (Ok(level), Some(libc::EACCES)) if level > 2 => format!(
            "kernel.perf_event_paranoid is {level} (`sudo sysctl kernel.perf_event_paranoid=2`, run as root, or with \
             CAP_PERFMON)"
        ),
        (Ok(_), Some(libc::EACCES)) => {
            "the kernel forbids them for this process (run as its user, as root, or with CAP_PERFMON)".to_owned()
        }
        (Ok(_), _) => format!(
            "{error} (a seccomp filter, as in containers, or a security module forbids perf_event_open: run outside, \
             or give the container CAP_PERFMON)"
        ),
    }
}
