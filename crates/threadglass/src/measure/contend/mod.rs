//! What a program's threads wait for over time, and for how long.

mod callers;
mod counting;
mod open;
mod run;
mod samples;
mod watch;

pub use counting::Counting;
pub use run::{ContendError, Contender, Progress, contend};
