//! Where another process spends its time: on CPUs ([`record`]), and asleep ([`record_waits`]).
//!
//! **What you give:** a live process, or a command that has not begun ([`Launched`]). **What you get:** a
//! [`Profile`], plain data: functions, ranges of code, stacks, a histogram as profil(2) defines it. **What it
//! will not do:** put anything into the process, stop it, or send it a signal. Ticks on CPUs are the kernel's
//! (`cpu-clock` of perf); waits are looked at from time to time like everything else here.

mod error;
mod flat;
mod image;
mod kernel;
mod launch;
mod record;
mod recorder;
mod region;
mod used_time;
mod wait;

pub use error::ProfileError;
pub use launch::Launched;
pub use record::{Source, record};
pub use region::Region;
pub use wait::record_waits;

use crate::model::{Profile, ProfileEnd, ProfileKind, ProfiledProcess, SCHEMA, StackShare};
pub use crate::perf::SamplingError;
use crate::perf::{Begin, Ticks};
use std::time::Duration;

/// The rate that is used when none is asked for: a prime number, so that the ticks do not run in step with the
/// program's own timers, and enough for a share of 1 % to be seen within ten seconds.
pub const DEFAULT_RATE: u32 = 997;

/// Looks per second at waiting threads, when no other number is asked for.
pub const DEFAULT_LOOKS: u32 = 20;

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ticks per second of CPU time; looks per second for waits.
    pub rate: u32,
    /// When to end, if nothing else ends it.
    pub duration: Option<Duration>,
    /// Record whole stacks.
    pub stacks: bool,
    /// Follow child processes, those that exist already and those that are forked meanwhile, and programs that are
    /// executed.
    pub children: bool,
    /// Record what the kernel does for the process too.
    pub kernel: bool,
    /// Count only ticks in this part of the code.
    pub region: Option<Region>,
    /// Bytes of histogram for each byte of code, in 65,536ths, as profil(2) has it. Also how finely ranges are
    /// told.
    pub scale: u32,
    /// Fill a histogram: of the region, or of the program's code.
    pub histogram: bool,
}

impl Options {
    /// Functions only, for a time.
    pub fn new(rate: u32, duration: Option<Duration>) -> Self {
        Self {
            rate,
            duration,
            stacks: false,
            children: false,
            kernel: false,
            region: None,
            scale: 0x4000,
            histogram: false,
        }
    }

    fn ticks(&self, begin: Begin) -> Ticks {
        Ticks { rate: self.rate, children: self.children, stacks: self.stacks, kernel: self.kernel, begin }
    }
}

/// How far a recording is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since it began.
    pub elapsed: Duration,
    /// Ticks or waits seen so far.
    pub samples: u64,
}

/// A profile in which nothing was found.
fn empty(kind: ProfileKind, target: ProfiledProcess, rate: u32, duration: Duration, end: ProfileEnd) -> Profile {
    Profile {
        schema: SCHEMA,
        target,
        kind,
        rate,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        end,
        samples: 0,
        outside: 0,
        kernel: None,
        cpu_ms: None,
        kernel_ms: None,
        lost: 0,
        throttled: 0,
        threads: 0,
        tasks_of: Vec::new(),
        clock: None,
        looks: None,
        functions: Vec::new(),
        ranges: Vec::new(),
        waits: Vec::new(),
        stacks: Vec::new(),
        mapped: Vec::new(),
        histogram: None,
        gaps: Vec::new(),
    }
}

/// Stacks in the order in which they are told.
fn most_first(mut stacks: Vec<StackShare>) -> Vec<StackShare> {
    let pcs = |stack: &StackShare| stack.frames.iter().map(|frame| frame.pc).collect::<Vec<_>>();
    stacks.sort_by_cached_key(|stack| (std::cmp::Reverse(stack.samples), pcs(stack), stack.waits_for.clone()));
    stacks
}

/// A share of all, in percent, with two decimals.
fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (part as f64 * 10_000.0 / all as f64).round() / 100.0 }
}
