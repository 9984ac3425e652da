//! Opening the clock: which events, and within which limits.

use super::{Options, ProfileError};
use crate::Pid;
use crate::model::ProfileClock as Clock;
use crate::sys::limits;
use ::perf::{self, Losses, Record, Sampler};

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

/// What ticks for a process.
#[derive(Debug)]
pub(super) struct Ticker {
    sampler: Sampler,
    wanted: perf::Options,
    pub(super) clock: Clock,
    /// Of events that are closed by now.
    earlier: Losses,
}

/// Opens the events for all threads of `pid`. One for each thread and CPU; where those are too many, one for
/// each CPU that ticks for everybody, if that is permitted.
pub(super) fn open(pid: Pid, options: &Options, begin: Begin) -> Result<Ticker, ProfileError> {
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
    let (sampler, clock) = match Sampler::of_process(pid.0, None, wanted) {
        Ok(sampler) => (sampler, Clock::Threads),
        Err(error @ perf::Error::TooMany { .. }) if begin == Begin::Now && !options.children => {
            let sampler = Sampler::of_cpus(wanted).map_err(|_| ProfileError::of_sampler(error, pid))?;
            (sampler, Clock::Cpus)
        }
        Err(error) => return Err(ProfileError::of_sampler(error, pid)),
    };
    Ok(Ticker { sampler, wanted, clock, earlier: Losses::default() })
}

impl Ticker {
    /// Lets CPUs tick instead of threads, if that is permitted.
    pub(super) fn widen(&mut self, take: impl FnMut(Record)) {
        // No tick is counted twice; a few may be missed.
        self.stop();
        let Ok(sampler) = Sampler::of_cpus(self.wanted) else {
            let _ = self.sampler.enable();
            return;
        };
        self.drain(take);
        self.earlier = self.losses();
        (self.sampler, self.clock) = (sampler, Clock::Cpus);
    }

    /// Ends the ticks; those that are there can still be had.
    pub(super) fn stop(&self) {
        let _ = self.sampler.disable();
    }

    /// Hands over the ticks that are there.
    pub(super) fn drain(&mut self, take: impl FnMut(Record)) {
        self.sampler.drain(take);
    }

    /// What could not be delivered.
    pub(super) fn losses(&self) -> Losses {
        let (Losses { lost, throttled }, now) = (self.earlier, self.sampler.losses());
        Losses { lost: lost + now.lost, throttled: throttled + now.throttled }
    }
}

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
