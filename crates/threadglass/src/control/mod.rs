//! Acting on a target. Nothing in this module only looks: every function changes something in the
//! target for as long as its guard lives, and says so in its name.

mod suspend;

pub use suspend::{HoldEnd, SuspendError, Suspended};
