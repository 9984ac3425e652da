//! Builds the programs in `fixtures/`, runs them, and runs the tool on them.
//!
//! A fixture prints its own truth as one JSON document, then the line `ready`, and goes on until its
//! standard input is closed. Tests compare what the tool reports with that truth.

mod browser;
mod build;
mod cargo_program;
mod cores;
mod end;
mod findings;
mod fixture;
mod freezer;
mod go;
mod hammer;
pub mod hostile;
mod lock_truth;
mod log;
mod roots;
pub mod scenes;
mod skip;
mod sync;
mod terminal;
mod tool;
mod truth;
mod user;
mod wait;
mod wheel;

pub use browser::Browser;
pub use build::{Build, Variant};
pub use cargo_program::{Keeps, TokioProgram};
pub use cores::{CoreFile, Dumpable};
pub use end::{end_with_descendants, kill_while_it_holds};
pub use findings::{HANGS, finding_faults, is_hang};
pub use fixture::Fixture;
pub use freezer::Freezer;
pub use go::Go;
pub use hammer::{agent_threads, goes_on, hammer, plugin};
pub use lock_truth::lock_faults;
pub use log::{Entry, Log};
pub use roots::{GlibcRoots, can_start_inside};
pub use serde_json::{self, Value, json};
pub use skip::{
    Capability, Extent, RUST_ON_MUSL, can_trace, can_unshare, has_capability, has_rust_on_musl, has_static_libc, have,
    is_root, library, part, root, skip,
};
pub use sync::{SyncView, sync_faults};
pub use terminal::{PROMPT, Terminal};
pub use tool::{Answer, Tool, thread, threads};
pub use truth::{View, differences, file_at_pc};
pub use user::{NOBODY, Public, STRANGER, as_user};
pub use wait::{TaskState, any_of, ensure, eventually, holds_within, task_state, wait_asleep};
pub use wheel::wheel;

/// Sends a signal to one process that a test started.
pub fn signal(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the process should be there");
}

pub use nix::sys::signal::Signal;

/// An address as JSON has it (`"0x.."`), as a number.
pub fn address(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("not an address: {value}"));
    let digits = text.strip_prefix("0x").unwrap_or_else(|| panic!("not an address: {text}"));
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("not an address: {text}"))
}
