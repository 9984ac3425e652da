//! Acting on a target. Nothing in this module only looks: every function changes something in the
//! target, for as long as its guard lives or for good, and says so in its name.

mod adjust;
mod copy_stack;
pub mod set_state;
mod stopped;
mod suspend;
mod tracer;
mod write;

pub use crate::sys::ptrace::RegisterSet;
pub use adjust::{AdjustError, raise_signals, set_priority};
pub use copy_stack::{StackCopy, add_stacks_stopping, copy_stack};
#[cfg(feature = "agent")]
pub(crate) use stopped::nap;
pub use stopped::{ControlError, StoppedThread};
pub use suspend::{HoldEnd, Suspended};
pub use tracer::Tracer;
pub use write::LiveWriter;
