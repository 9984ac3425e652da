//! Acting on a target. Nothing in this module only looks: every function changes something in the
//! target, for as long as its guard lives or for good, and says so in its name.

mod adjust;
mod copy_stack;
mod fits;
#[cfg(feature = "agent")]
pub mod inject;
#[cfg(feature = "agent")]
mod place;
mod seccomp;
pub mod set_state;
mod stopped;
mod suspend;
mod switch;
mod tracer;
mod write;

pub use crate::own_dir::{Access, own_dir};
pub use crate::sys::ptrace::RegisterSet;
pub use adjust::{AdjustError, raise_signals, set_priority};
pub use copy_stack::{StackCopy, add_missing_stacks_stopping, add_stacks_stopping, copy_stack};
pub use fits::misfit;
#[cfg(feature = "agent")]
pub use place::{NoPlace, environment, place};
#[cfg(feature = "agent")]
pub(crate) use stopped::nap;
pub use stopped::{ControlError, StoppedThread};
pub use suspend::HoldEnd;
pub use switch::ControllerSlot;
pub use tracer::Tracer;
pub use write::LiveWriter;
