//! The threads of a process: libc's list and the kernel's list, made to agree.

mod collect;
mod describe;
mod inspect;
mod job_control;
mod main_stack;
mod musl;
mod pairing;
mod running;
mod state;
mod tsd;

pub(crate) use collect::{Collected, SUSPENDER, collect_threads};
pub use inspect::{InspectError, Inspector};
pub use tsd::thread_data;
