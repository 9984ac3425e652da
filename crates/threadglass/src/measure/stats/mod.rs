//! How many threads of a process run, and what each of them does with its time.
//!
//! **What you give:** a live process and some time. **What you get:** time averages ([`Averages`]) from the
//! kernel's own integrals (time on a CPU, time queued for one), not from a count of states; and, with
//! [`Watch`], the microstates of every thread. **What it will not do:** put anything into the process, or
//! slow it down. All that is read are small files of `/proc`.
//!
//! What the kernel tells, and how that is used (measured on Linux 6.18):
//!
//! - `schedstat` of each thread has the time it ran and the time it was queued. The first lags by a clock tick
//!   at most; the second is booked only when the thread gets its CPU. Of a thread that has not slept between two
//!   samples (the kernel counts that), all time in which it did not run is such time, booked or not.
//! - The CPU clock of the process has the time of ended threads too, to the nanosecond. So nothing that ran
//!   is lost, however short its life. For how long brief threads were queued is known only from the
//!   samples in which they were found so.
//! - Of a program whose runtime runs tasks on threads (goroutines) tasks are counted, and those that could run and had no thread,
//!   in the same samples.
//! - The number of threads is sampled, some fifty times a second; a thread that came or went between two
//!   samples counts for half the time between them.

mod averages;
mod locks;
mod meter;
mod runnable;
mod sampler;
mod task;
mod tasks;
mod watch;

pub use averages::{Averages, Fractions};
pub use sampler::{Sampler, SamplerError};
pub use watch::{Known, Watch};
