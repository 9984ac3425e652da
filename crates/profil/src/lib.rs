//! profil(2) and pcsample(2) for Linux: where a process spends its CPU time, as a histogram over its code.
//!
//! `crates/libprofil` makes the library `libprofil.so` of the functions of `<profil.h>` ([`c`]). From Rust,
//! [`Profiler`] gives a guard that owns the histogram. Under both are parts that serve other processes too:
//!
//! - [`histogram`]: which cell an address belongs to, exactly, for every scale;
//! - [`perf`]: samples of running threads, of this or another process;
//! - [`gmon`]: files that gprof reads.
//!
//! # How it works
//!
//! While a profile is taken there is one more thread, named `profil`. It opens a perf event for every thread
//! and CPU in a table of open files of its own, collects their samples about ten times a second, and counts
//! them with `process_vm_writev` on its own process, so that a bad buffer is an error code and not a crash.
//! The program's threads run no code of ours, and see no signal, timer or file. Where perf events are denied,
//! each thread gets a CPU-time timer and a real-time signal that was free.
#![deny(unsafe_code)]

mod api;
pub mod c;
mod clock;
pub mod gmon;
pub mod histogram;
pub mod perf;
mod session;
mod sink;
mod state;
#[allow(unsafe_code, reason = "system calls, and memory shared with the kernel and with signal handlers")]
mod sys;
mod threads;

pub use api::{Builder, DEFAULT_RATE, Error, Histogram, Profile, Profiler};
pub use clock::Clock;
pub use session::Stats;
pub use sink::Ended;
