//! One look at a target: its threads, what they wait for, who holds it, and what is wrong.

pub mod doctor;
pub mod guards;
mod stacks;
pub mod threads;
pub mod waits;

pub use stacks::{Moving, Stacks, add_stacks, walk_bytes};
