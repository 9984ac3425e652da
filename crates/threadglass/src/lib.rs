//! Look inside a multithreaded native Linux process, alive or in a core file, without stopping it.
//!
//! # Open a target and look
//!
//! [`target::Live`] is a running process, [`target::Core`] a core file; every function that looks takes either.
//! [`look::look`] returns a [`model::Snapshot`]. [`look::Scope`] says what to look for: threads alone, locks that
//! threads wait for, locks that they hold, all locks. [`look::look_at`] looks at one lock, [`look::Look`] is for
//! repeated looks, [`look::thread_data`] reads thread-specific data.
//!
//! ```
//! use threadglass::look::{Names, Scope, look};
//! use threadglass::{Pid, target::Live};
//!
//! let live = Live::open(Pid::me())?;
//! let snapshot = look(&live, Scope::Waited, Names::None)?;
//! for thread in &snapshot.threads {
//!     println!("{:?} {}", thread.name, thread.state.word());
//! }
//! # assert!(snapshot.threads.iter().any(|thread| thread.lwp.is_some()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! Everything in [`model`] is plain data, and serialisable with the feature `serde`. A fact that was not simply read
//! says how it is known ([`model::Evidence`]), and what could not be read is a [`model::Gap`].
//!
//! ```
//! # use threadglass::look::{Names, Scope, look};
//! # use threadglass::{Pid, target::Live};
//! use threadglass::model::Evidence;
//!
//! # let snapshot = look(&Live::open(Pid::me())?, Scope::Threads, Names::None)?;
//! let guessed = snapshot.threads.iter().filter(|thread| thread.state_evidence >= Evidence::Inferred);
//! println!("{} states are guesses", guessed.count());
//! for gap in &snapshot.gaps {
//!     println!("not seen: {}: {}", gap.what, gap.why);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Explain
//!
//! [`look::explain`] is for a process that hangs. It adds [`model::Finding`]s, such as a deadlock or a lock whose owner
//! has ended, and the stacks of the threads that they concern.
//!
//! ```
//! use threadglass::{Pid, look::explain, target::Live};
//!
//! let snapshot = explain(&Live::open(Pid::me())?)?;
//! assert!(!snapshot.findings.iter().any(|finding| finding.is_certain_hang()), "this program does not hang");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Act
//!
//! Looking never stops, signals or writes to a process. What does is in [`act`]: stop a thread
//! ([`act::StoppedThread`]), set a lock by force ([`act::set_state`]), load an agent that counts ([`act::inject`]).
//!
//! ```
//! use threadglass::{Pid, act::StoppedThread};
//!
//! let mut child = std::process::Command::new("sleep").arg("60").spawn()?;
//! let pid = Pid(child.id() as i32);
//! let stopped = StoppedThread::stop(pid, pid.leader())?;
//! drop(stopped); // and it goes on
//! child.kill()?;
//! # child.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Measure
//!
//! [`measure`] watches a process for a while: what its threads do with their time ([`measure::stats`]), which locks
//! they contend for ([`measure::contend`]), which functions run or wait ([`measure::profile`]).
//!
//! ```
//! use std::time::Duration;
//! use threadglass::measure::stats::{Known, Watch};
//! use threadglass::{Interrupt, Pid, target::Live};
//!
//! let live = Live::open(Pid::me())?;
//! let known = Known::of(&live)?;
//! let stats = Watch::new(&live, &known)?.interval(Duration::from_millis(50), &Interrupt::watch()?)?;
//! println!("{:.1} threads ran, on average", stats.process.a_concurrency);
//! # assert!(stats.process.nlwps >= 1.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Examples
//!
//! Three complete programs are in `examples/`: `watchdog` explains its own process when it is stuck, `waits` lists what
//! each thread of a process waits for, `follow_lock` prints each change of one lock.
#![deny(unsafe_code)]
// What only the inside is for would be called dead where that is closed.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]

pub mod act;
mod arch;
mod by_number;
mod elf;
mod host;
mod ids;
mod limits;
pub mod look;
pub mod measure;
pub mod memory;
pub mod model;
mod own_dir;
#[cfg(feature = "profile")]
mod perf;
mod proc;
mod runtimes;
#[cfg(feature = "snap")]
pub mod snap;
mod symbols;
#[allow(unsafe_code)]
mod sys;
mod table;
pub mod target;
mod unwind;

pub use arch::syscall_name;
pub use ids::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};
pub use limits::{Limits, Running};
pub use sys::heap::keep_freed_memory;
pub use sys::interrupt::{Asked, Interrupt};
pub use sys::terminal::{columns as terminal_columns, lines as terminal_lines};

/// The inside: open to the C library, tests and fuzz targets of this workspace, without any promise.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub use crate::arch::insn;
    pub use crate::elf::{DataSymbols, FileSymbols, Image, build_id_of_file, demangle};
    pub use crate::look::guards::{RestingThread, Suspect, WantedLock, follow_bytes, landing_pad, suspects};
    pub use crate::look::stacks::walk_bytes;
    pub use crate::look::threads::{InspectError, Inspector};
    pub use crate::look::waits::{NoPlace, Reread, around, by_content, check_place, reread};
    pub use crate::proc::seccomp::{Filter, Verdict, verdict};
    pub use crate::proc::{
        KernelState, SyscallFile, parse_auxv, parse_maps, parse_stack_limit, parse_stat, parse_status, parse_syscall,
    };
    pub use crate::runtimes::{FutexWait, Types, fuzzed, glibc};
    pub use crate::symbols::{DataNames, LockVariable, ObjectNames};
    #[cfg(feature = "profile")]
    pub use crate::symbols::{JitFiles, JitFunction};
    pub use crate::table::{Agent, Tracked};
    pub use crate::unwind::{MAX_FRAMES, Registers, Space};
}
