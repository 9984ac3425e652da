//! Sampling threads of another process by perf events, within the limits of the machine.
//!
//! The crate `perf` opens the events and reads their rings; here is decided which events they are.

mod error;
mod switches;
mod ticker;
mod watch;

pub(crate) use ::perf::{Record, Sample, family, online_cpus};
pub use error::SamplingError;
pub(crate) use switches::{Switches, are_dear};
pub(crate) use ticker::{Begin, Ticker, Ticks};
pub(crate) use watch::Watch;
