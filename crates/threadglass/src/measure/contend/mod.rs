//! What a program's threads wait for over time, and for how long.

#[allow(clippy::module_inception)]
mod contend;
mod counting;
mod samples;
mod watch;

pub use contend::{ContendError, Contender, Progress, contend};
pub use counting::Counting;
