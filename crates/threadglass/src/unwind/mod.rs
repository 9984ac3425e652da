//! Stacks: from registers, memory and unwind tables to frames.
//!
//! **What you give:** a target ([`add_stacks`], [`Stacks`]). **What you get:** the frames of every thread
//! that stands still, with its evidence, and why each stack ends. **What it will not do:** stop a thread
//! (that is [`crate::control::copy_stack`]), or go on by a guess: a frame that cannot be undone by its
//! own unwind rule ends the stack.
//!
//! Tables are read from the target's memory, where the language run-times need them, so no file has to
//! be found. Everything in them and on the stack is the target's claim; walks are bounded.

mod call;
mod cfi;
mod entries;
mod expression;
mod infer;
mod libc_site;
mod sites;
mod space;
mod stack;
mod stacks;
mod walk;

pub use crate::arch::Registers;
pub(crate) use call::{through_stubs, unbound_import};
pub(crate) use sites::{Site, Sites};
pub(crate) use space::Known;
pub use space::Space;
pub(crate) use stack::StackWords;
pub use stacks::{Moving, Stacks, add_stacks, walk_bytes};
pub(crate) use walk::Walker;
pub use walk::{MAX_FRAMES, Place, Walk};
