//! The tracking agent, as bytes: a shared object that counts what a program does with its locks, from inside.
//!
//! Its source is in `inside/`, and is compiled by this crate's build script: it is for the program, not for us, and
//! must not be linked with anything of ours.

/// The shared object.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));

/// The variable of the environment that tells the agent what is wanted: `off` or `exact`, `size=N`.
pub const VARIABLE: &str = "THREADGLASS_AGENT";
