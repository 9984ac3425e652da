//! Opening the clock: which events, and within which limits.

use super::error::SamplingError;
use crate::Pid;
use crate::model::ProfileClock as Clock;
use crate::sys::limits;
use ::perf::{Error, HIGHEST_RATE, Losses, Options, Record, Sampler};

/// Bytes of stack that a sample carries. Deeper stacks are cut.
const STACK: u32 = 16 << 10;

/// When ticks begin to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At once, and until another program is executed (unless children are followed).
    Now,
    /// When a program is executed.
    AtExec,
}

/// Which ticks are wanted, and what they carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// Ticks per second of CPU time.
    pub(crate) rate: u32,
    /// Of processes forked later too.
    pub(crate) children: bool,
    /// With registers and a part of the stack.
    pub(crate) stacks: bool,
    /// Of the kernel's work for them too.
    pub(crate) kernel: bool,
    pub(crate) begin: Begin,
}

/// What ticks for a process.
#[derive(Debug)]
pub(crate) struct Ticker {
    sampler: Sampler,
    wanted: Options,
    pub(crate) clock: Clock,
    /// Of events that are closed by now.
    earlier: Losses,
}

impl Ticker {
    /// Opens the events for all threads of `pid`. One for each thread and CPU; where those are too many, one for
    /// each CPU that ticks for everybody, if that is permitted.
    pub(crate) fn open(pid: Pid, ticks: Ticks) -> Result<Self, SamplingError> {
        let Ticks { rate, children, stacks, kernel, begin } = ticks;
        check_rate(rate)?;
        let wanted = Options {
            forks: children,
            remove_on_exec: begin == Begin::Now && !children,
            enable_on_exec: begin == Begin::AtExec,
            stack: stacks.then_some(STACK),
            kernel,
            ..Options::new(rate)
        };
        if begin == Begin::Now {
            // A command of ours has one thread when it begins, and is not to inherit this.
            limits::raise_open_files();
        }
        let opened = match children && begin == Begin::Now {
            true => Sampler::of_family(pid.0, wanted),
            false => Sampler::of_process(pid.0, None, wanted),
        };
        let (sampler, clock) = match opened {
            Ok(sampler) => (sampler, Clock::Threads),
            Err(error @ Error::TooMany { .. }) if begin == Begin::Now && !children => {
                let sampler = Sampler::of_cpus(wanted).map_err(|_| SamplingError::of_sampler(error, pid))?;
                (sampler, Clock::Cpus)
            }
            Err(Error::Open(error)) if kernel && permits_user(pid) => return Err(SamplingError::no_kernel(&error)),
            Err(error) => return Err(SamplingError::of_sampler(error, pid)),
        };
        Ok(Self { sampler, wanted, clock, earlier: Losses::default() })
    }

    /// Lets CPUs tick instead of threads, if that is permitted.
    pub(crate) fn widen(&mut self, take: impl FnMut(Record)) {
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
    pub(crate) fn stop(&self) {
        let _ = self.sampler.disable();
    }

    /// Hands over the ticks that are there.
    pub(crate) fn drain(&mut self, take: impl FnMut(Record)) {
        self.sampler.drain(take);
    }

    /// Threads of child processes that may not be sampled.
    pub(crate) fn refused(&self) -> usize {
        self.sampler.refused()
    }

    /// What could not be delivered.
    pub(crate) fn losses(&self) -> Losses {
        let (Losses { lost, throttled }, now) = (self.earlier, self.sampler.losses());
        Losses { lost: lost + now.lost, throttled: throttled + now.throttled }
    }
}

/// Whether the threads of `pid` may be sampled in user mode.
fn permits_user(pid: Pid) -> bool {
    Sampler::of_threads(&[pid.0], Options::new(1)).is_ok()
}

/// Whether the kernel permits the rate at present. What is possible at all the sampler knows.
fn check_rate(rate: u32) -> Result<(), SamplingError> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    match kernel.trim().parse::<u32>() {
        Ok(most) if most < rate && most < HIGHEST_RATE => Err(SamplingError::Rate {
            rate,
            limit: format!(
                "kernel.perf_event_max_sample_rate is {most} (the kernel lowers it when sampling costs too much)"
            ),
        }),
        _ => Ok(()),
    }
}
