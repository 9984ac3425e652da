//! profil(2) and pcsample(2) for Linux: where a process spends its CPU time, as a histogram over its code.
//!
//! The shared library `libprofil.so` has the functions of `<profil.h>` ([`c`]). From Rust, [`Profiler`] gives a guard
//! that owns the histogram. **A Rust program that links this crate has the C names too**: calls of `profil` in it and in
//! its libraries come here, not to the C library. Whoever only wants samples or cells takes the crate `perf`, on which
//! this one stands.
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
mod session;
mod sink;
mod state;
#[allow(unsafe_code, reason = "system calls, and memory shared with the kernel and with signal handlers")]
mod sys;
mod threads;

pub use api::{Builder, DEFAULT_RATE, Error, Histogram, Profile, Profiler};
pub use clock::Clock;
pub use perf::{HIGHEST_RATE, histogram::Layout};
pub use session::Stats;
pub use sink::Ended;
