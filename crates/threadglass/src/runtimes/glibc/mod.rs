//! What glibc keeps in the target's memory about its threads.
//!
//! Layouts come from the target's own libc: from the descriptors it exports for debuggers
//! (`_thread_db_*`), from calibration against its living threads, never from one hard-coded version.

mod concurrency;
mod descriptor;
pub mod events;
mod guess;
mod inside;
mod layout;
mod list;
pub mod locks;
mod recipes;
mod robust;
mod runtime;
pub mod tls;
pub mod tsd;
mod versions;
mod waits;

pub use concurrency::requested_concurrency;
pub use descriptor::{Descriptor, DescriptorReader};
pub use layout::{KeyLayout, Layout, LayoutError};
pub use list::{ListFault, ListWalk, MAX_NODES, walk};
pub(crate) use runtime::Glibc;
