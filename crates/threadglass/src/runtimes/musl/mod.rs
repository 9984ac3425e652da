//! musl: the threads and locks of another C library, which is often linked into the program.
//!
//! musl describes itself to nobody. Its structures have been the same since 1.1.22 (2019) but for one word, and a thread's
//! descriptor is known by its shape: it points to itself, stands in a ring of all threads, and has the kernel's id.

mod layout;
mod locks;
mod own_stack;
mod robust;
mod runtime;
mod threads;
mod waits;

pub use layout::Layout;
pub(crate) use runtime::Musl;
pub(crate) use threads::{Descriptor, ThreadRing};
