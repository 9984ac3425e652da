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

pub mod act;
mod arch;
pub mod elf;
mod ids;
pub mod limits;
pub mod look;
pub mod measure;
pub mod memory;
pub mod model;
pub mod own_dir;
pub mod proc;
pub mod runtimes;
pub mod symbols;
#[allow(unsafe_code)]
pub(crate) mod sys;
pub mod table;
pub mod target;
pub mod unwind;

pub use ids::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};
pub use sys::interrupt::{Asked, Interrupt};
pub use sys::terminal::lines as terminal_lines;
