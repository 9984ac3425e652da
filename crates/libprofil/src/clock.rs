//! Where ticks come from: perf events, or where they are denied CPU-time timers of each thread.

use crate::sys::{process, timers};
use crate::threads::Threads;
use perf::{Options, Record, Sampler};
use std::fmt;
use std::io;
use std::time::Duration;

/// What makes the ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's `cpu-clock` event: program counters in user mode, at the rate that was asked for. The
    /// program notices nothing.
    Perf,
    /// A CPU-time timer for each thread, which sends a real-time signal: at most as many samples a second as the
    /// kernel's own clock has ticks (100 to 1000; several ticks of one sample are counted at one place). Time
    /// in the kernel is counted where the system call returns to. Threads that block the signal are not seen,
    /// nor are those that live shorter than it takes to find them (a tenth of a second).
    Timers,
}

/// Which clock to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Perf events, or timers where these are denied.
    #[default]
    Auto,
    /// Only this one.
    Only(Clock),
}

/// Why there are no ticks.
#[derive(Debug)]
pub struct Refused {
    pub perf: Option<perf::Error>,
    pub timers: Option<io::Error>,
}

impl Refused {
    /// The error number that tells most.
    pub fn errno(&self) -> i32 {
        let perf = match &self.perf {
            Some(perf::Error::Open(error) | perf::Error::Map(error)) => error.raw_os_error(),
            Some(perf::Error::TooMany { .. }) => Some(libc::EMFILE),
            _ => None,
        };
        self.timers.as_ref().and_then(io::Error::raw_os_error).or(perf).unwrap_or(libc::EAGAIN)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut and = "";
        if let Some(error) = &self.perf {
            write!(f, "{error}")?;
            and = "; ";
        }
        if let Some(error) = &self.timers {
            write!(f, "{and}timers of threads: {error}")?;
        }
        Ok(())
    }
}

/// A clock that runs, for all threads of this process but the one that opened it.
#[derive(Debug)]
pub(crate) enum Source {
    Perf(Sampler),
    Timers(Threads),
}

impl Source {
    /// Starts one, and says why it is not perf if it could have been.
    pub fn open(choice: Choice, rate: u32) -> Result<(Self, Option<perf::Error>), Refused> {
        let mut refused = Refused { perf: None, timers: None };
        // Without a table of its own the helper's files would have numbers in the program, which may close them
        // at any time. Timers need files only for moments.
        let private = process::private_files();
        if choice != Choice::Only(Clock::Timers) {
            match private.map_err(perf::Error::Open).and_then(|()| perf(rate)) {
                Ok(sampler) => return Ok((Self::Perf(sampler), None)),
                Err(error) => refused.perf = Some(error),
            }
        }
        if choice != Choice::Only(Clock::Perf) {
            match Threads::start(rate) {
                Ok(threads) => return Ok((Self::Timers(threads), refused.perf)),
                Err(error) => refused.timers = Some(error),
            }
        }
        Err(refused)
    }

    pub fn clock(&self) -> Clock {
        match self {
            Self::Perf(_) => Clock::Perf,
            Self::Timers(_) => Clock::Timers,
        }
    }

    /// The longest time between two calls of `drain`.
    pub fn longest_nap(&self) -> Duration {
        match self {
            // A ring holds more than a second.
            Self::Perf(_) => Duration::from_millis(400),
            Self::Timers(_) => Duration::from_millis(100),
        }
    }

    /// Takes the ticks that are there: program counter, and how many.
    pub fn drain(&mut self, mut take: impl FnMut(u64, u64)) {
        match self {
            Self::Perf(sampler) => sampler.drain(|record| {
                if let Record::Sample(sample) = record {
                    take(sample.ip, 1);
                }
            }),
            Self::Timers(threads) => {
                timers::collect(take);
                threads.look();
            }
        }
    }

    /// Ticks that were lost, and times the kernel slowed the clock down.
    pub fn losses(&self) -> (u64, u64) {
        match self {
            Self::Perf(sampler) => (sampler.losses().lost, sampler.losses().throttled),
            Self::Timers(_) => (timers::lost(), 0),
        }
    }

    pub fn pause(&mut self) {
        match self {
            // It fails only where the event is gone, and with it the ticks.
            Self::Perf(sampler) => drop(sampler.disable()),
            Self::Timers(threads) => threads.pause(),
        }
    }

    pub fn resume(&mut self) {
        match self {
            Self::Perf(sampler) => drop(sampler.enable()),
            Self::Timers(threads) => threads.resume(),
        }
    }
}

fn perf(rate: u32) -> Result<Sampler, perf::Error> {
    let options = Options { remove_on_exec: true, ..Options::new(rate) };
    Sampler::of_process(std::process::id() as i32, Some(process::gettid()), options)
}
