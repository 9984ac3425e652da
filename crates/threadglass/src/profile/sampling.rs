//! Opening the clock: which events, and within which limits.

use super::{Options, ProfileError};
use crate::Pid;
use crate::sys::limits;
use profil::perf::{self, Sampler};

/// Bytes of stack that a sample carries. Deeper stacks are cut.
const STACK: u32 = 16 << 10;

/// When ticks begin to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// At once, and until another program is executed (unless children are followed).
    Now,
    /// When a program is executed.
    AtExec,
}

/// Opens the events for all threads of `pid`. One for each thread and CPU; where those are too many, one for
/// each CPU that ticks for everybody, if that is permitted.
pub(super) fn open(pid: Pid, options: &Options, begin: Begin) -> Result<Sampler, ProfileError> {
    check_rate(options.rate)?;
    let wanted = perf::Options {
        forks: options.children,
        remove_on_exec: begin == Begin::Now && !options.children,
        enable_on_exec: begin == Begin::AtExec,
        stack: options.stacks.then_some(STACK),
        ..perf::Options::new(options.rate)
    };
    if begin == Begin::Now {
        // A command of ours has one thread when it begins, and is not to inherit this.
        limits::raise_open_files();
    }
    match Sampler::of_process(pid.0, None, wanted) {
        Err(error @ perf::Error::TooMany { .. }) if begin == Begin::Now && !options.children => {
            let everybody = perf::Options { inherit: false, remove_on_exec: false, ..wanted };
            Sampler::of_threads(&[EVERYBODY], everybody).map_err(|_| ProfileError::of_sampler(error, pid))
        }
        other => other.map_err(|error| ProfileError::of_sampler(error, pid)),
    }
}

/// What perf takes for all threads of a CPU.
const EVERYBODY: i32 = -1;

fn check_rate(rate: u32) -> Result<(), ProfileError> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    match kernel.trim().parse::<u32>() {
        Ok(most) if most < rate && most < perf::HIGHEST_RATE => Err(ProfileError::Rate {
            rate,
            limit: format!(
                "kernel.perf_event_max_sample_rate is {most} (the kernel lowers it when sampling costs too much)"
            ),
        }),
        _ if !(1..=perf::HIGHEST_RATE).contains(&rate) => {
            Err(ProfileError::Rate { rate, limit: format!("1 to {} are", perf::HIGHEST_RATE) })
        }
        _ => Ok(()),
    }
}
