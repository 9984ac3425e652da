//! Stacks: from registers, memory and unwind tables to frames.
//!
//! No thread is stopped here, and no walk goes on by a guess: a frame that cannot be undone by its own unwind rule ends
//! the stack. Tables are read from the target's memory, where language run-times need them: no file has to be found. Code
//! that has none there may have one in its file. Where there is no rule at all, a function is followed to its return, or
//! frame pointers lead to inferred frames.

mod call;
mod cfi;
mod debug_frame;
mod entries;
mod expression;
mod follow;
mod infer;
mod libc_site;
mod names;
mod sites;
mod space;
mod stack;
mod walk;

pub use crate::arch::Registers;
pub(crate) use call::{Call, through_stubs, unbound_import};
pub(crate) use libc_site::call_site;
pub(crate) use names::FrameNames;
pub(crate) use sites::{Caller, Site, Sites};
pub(crate) use space::Known;
pub use space::Space;
pub(crate) use stack::{StackWords, word_in};
pub(crate) use walk::Walker;
pub use walk::{MAX_FRAMES, Place, Walk};
