//! Look inside a running multithreaded native Linux process from outside, without stopping it.
//!
//! **What you give:** a pid ([`target::Live::open`]) or a core file ([`target::Core::open`]). **What you
//! get:** a [`model::Snapshot`] of its
//! threads (and, with [`glibc::tsd`], their thread-specific data) as plain data in which every fact
//! that was not simply read carries its [`model::Evidence`], and whatever could not be read is
//! listed as a [`model::Gap`]. **What it will not do:** stop, signal, write to or inject into the
//! target. The one exception is named for what it does and lives apart: [`control`].
//!
//! ```
//! use threadglass::look::{Names, Scope, look};
//! use threadglass::{Pid, target::Live};
//!
//! let live = Live::open(Pid::me())?;
//! let snapshot = look(&live, Scope::Threads, Names::None)?;
//! assert!(snapshot.threads.iter().any(|t| t.lwp.is_some()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Data goes one way: [`target`] (bytes, kernel facts) → [`glibc`], [`symbols`] (knowledge) →
//! [`model`] (plain data) → whoever prints it.
#![deny(unsafe_code)]
// What only the inside is for would be called dead where that is closed.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]

pub mod act;
mod arch;
mod ids;
pub mod look;
pub mod measure;
pub mod memory;
pub mod model;
#[allow(unsafe_code)]
mod sys;
pub mod target;

pub use arch::syscall_name;
pub use ids::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};
pub use limits::{Limits, Running};
pub use sys::interrupt::{Asked, Interrupt};
pub use sys::terminal::lines as terminal_lines;

// The inside: open to the C library, tests and fuzz targets of this workspace, without any promise.
#[cfg(not(feature = "internals"))]
pub(crate) mod elf;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod elf;
#[cfg(not(feature = "internals"))]
pub(crate) mod limits;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod limits;
#[cfg(not(feature = "internals"))]
pub(crate) mod own_dir;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod own_dir;
#[cfg(not(feature = "internals"))]
pub(crate) mod proc;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod proc;
#[cfg(not(feature = "internals"))]
pub(crate) mod runtimes;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod runtimes;
#[cfg(not(feature = "internals"))]
pub(crate) mod symbols;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod symbols;
#[cfg(not(feature = "internals"))]
pub(crate) mod table;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod table;
#[cfg(not(feature = "internals"))]
pub(crate) mod unwind;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod unwind;
