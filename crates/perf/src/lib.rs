//! What profilers share: `libprofil`, of its own process, and threadglass, of another.
//!
//! - A [`Sampler`] samples running threads by the kernel's `cpu-clock` event. It has one event for each thread and CPU,
//!   because the kernel allows threads created later to inherit an event, and a ring to be read, only together with
//!   one CPU. The events of one CPU share its ring. Nothing happens in the sampled threads but the timer interrupt:
//!   no signal, no code of ours.
//! - [`histogram`]: which cell of a histogram over code an address belongs to, exactly, for every scale.
//! - [`gmon`]: files of histograms that gprof reads.
#![deny(unsafe_code)]

mod cover;
pub mod gmon;
pub mod histogram;
pub mod record;
mod sampler;
#[allow(unsafe_code, reason = "system calls, and memory shared with the kernel")]
mod sys;

pub use record::{Record, Registers, Sample};
pub use sampler::{Error, HIGHEST_RATE, Losses, Options, Sampler, family, online_cpus, tasks};
